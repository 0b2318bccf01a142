-- DGX-2 with PyTorch in eager mode and 16 bits: two of 16 V100 of 32 GB, eight adapters of 100 Gb/s
-- (nnScaler, section 8.3.1). A cluster of named figures, none fitted:
--
-- inside           6 NVLinks of 20 GB/s, what NCCL counts on for Volta (NCCL, src/graph/topo.h)
-- across           105 us for 1 MB on an adapter of 100 Gb/s, measured on DGX-2 and on nodes of 8 V100
--                  (TACCL, Shah et al., NSDI 2023; its taccl/examples/topo/topo-dgx2-1MB.json)
-- half_efficiency  half of the 125 TFLOP/s of the data sheet: Megatron-LM has 62.4, 48 % of the peak
--                  of a V100 of DGX-2H, for whole steps ("MegatronLM's Supercharged V1.0", NVIDIA 2020),
--                  and had 39 before (Shoeybi et al. 2019, section 5.1)
-- dispatch         the microseconds of a PyTorch op on the host, round (PyTorch, "Accelerating
--                  PyTorch with CUDA Graphs", 2021)
-- host_node        3 GB/s for each of 16 GPUs that read host memory together (ZeRO-Infinity, Rajbhandari
--                  et al. 2021, figure 2b)
-- host_update      12 bytes of states of 1e9 parameters in 0.22 s, 1e10 in 2.57 s: about 50 GB/s
--                  (ZeRO-Offload, Ren et al. 2021, table 4: CPU-Adam)
-- host_weights     "offloads weights to CPU memory … and retrieves them" (nnScaler, section 8.3)
-- prefetch, queues ZeRO-3's gathers are "on the critical path of forward and backward" (nnScaler, 8.3.2),
--                  and run in one NCCL stream
return {
  nodes = 2, per_node = 16, nics = 8,
  inside = { alpha = 0.6e-6, beta = 1 / 120e9 },
  across = { alpha = 2.7e-6, beta = 1 / 10e9 },
  start = 6.6e-6,
  memory = 34.1e9, reserve = 0.6e9, memory_speed = 900e9, f32 = 15.7e12, half = 125e12, launch = 2e-6, host = 16e9,
  half_efficiency = 0.5, dispatch = 8e-6, host_node = 48e9, host_update = 50e9, host_weights = true,
  prefetch = 0, queues = 1, nccl = true,
}

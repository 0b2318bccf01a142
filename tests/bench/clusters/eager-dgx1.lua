-- DGX-1 with PyTorch in eager mode and 16 bits: four of 8 V100 of 32 GB, one network of 100 Gb/s each
-- (nnScaler, section 8.3.5; SuperScaler, section 6.1). Other figures as in eager-dgx2.lua; host memory
-- has four PCIe switches of two GPUs each, with 12 GB/s of 16 (WP-08437-002; NCCL, src/graph/topo.h).
return {
  nodes = 4, per_node = 8, nics = 1,
  inside = { alpha = 0.6e-6, beta = 1 / 120e9 },
  across = { alpha = 2.7e-6, beta = 1 / 10e9 },
  start = 6.6e-6,
  memory = 34.1e9, reserve = 0.6e9, memory_speed = 900e9, f32 = 15.7e12, half = 125e12, launch = 2e-6, host = 16e9,
  half_efficiency = 0.5, dispatch = 8e-6, host_node = 48e9, host_update = 50e9, host_weights = true,
  prefetch = 0, queues = 1, nccl = true,
}

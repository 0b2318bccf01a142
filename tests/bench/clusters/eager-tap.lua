-- TAP's nodes of 8 V100 of 32 GB with 32 Gb/s of Ethernet between them (sections 4.6 and 6.1), and PCIe 3.0 within them, of which
-- NCCL counts on 12 GB/s (NCCL, src/graph/topo.h). Hops by PCIe and Ethernet: NCCL's 1.0 us, and a round 30 us.
return {
  nodes = 2, per_node = 8,
  inside = { alpha = 1e-6, beta = 1 / 12e9 },
  across = { alpha = 30e-6, beta = 1 / 4e9 },
  start = 6.6e-6,
  memory = 34.1e9, reserve = 0.6e9, memory_speed = 900e9, f32 = 15.7e12, half = 125e12, launch = 2e-6, host = 16e9,
  half_efficiency = 0.5, dispatch = 8e-6, queues = 1, nccl = true,
}

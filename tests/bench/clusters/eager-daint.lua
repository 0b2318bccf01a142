-- Piz Daint with OneFlow in f32: nodes of one P100 of 16 GB (AutoDDL, section 5.2.1). P100 PCIe: 732 GB/s, 9.3 TFLOP/s (data
-- sheet), 16,280 MiB. The bandwidth of the network is fitted, on VGG13 alone (papers.py); the theoretical peak is 8.5 to 10 GB/s.
return {
  nodes = 256, per_node = 1,
  inside = { alpha = 0.6e-6, beta = 1 / 12e9 },
  across = { alpha = 2.7e-6, beta = 1 / 4.4e9 },
  start = 6.6e-6,
  memory = 17.07e9, reserve = 0.5e9, memory_speed = 732e9, f32 = 9.3e12, half = 18.7e12, launch = 2e-6, host = 12e9,
  dispatch = 8e-6, nccl = true,
}

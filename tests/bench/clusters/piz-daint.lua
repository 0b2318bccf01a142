-- AutoDDL's nodes of Piz Daint with one P100 of 16 GB each (section 5.2.1): 8.5 to 10 GB/s between
-- nodes. P100 PCIe 16 GB: 732 GB/s, 9.3 TFLOP/s in f32, 18.7 in 16 bits (data sheet). Three times
-- the memory: the paper recomputes activations, these plans save them.
return {
  nodes = 256, per_node = 1,
  inside = { alpha = 0.6e-6, beta = 1 / 16e9 },
  across = { alpha = 2.7e-6, beta = 1 / 9.25e9 },
  start = 6.6e-6,
  memory = 48e9, memory_speed = 732e9, f32 = 9.3e12, half = 18.7e12, launch = 2e-6,
}

-- AutoDDL's two servers of 16 A100 of 40 GB (section 5.3.1): 600 GB/s of NVLink a GPU in both
-- directions together, and one network of 100 Gb/s between the two. A100 40 GB SXM: 1555 GB/s, 19.5
-- and 312 TFLOP/s (data sheet). Three times the memory: the paper recomputes activations, these
-- plans save them.
return {
  nodes = 2, per_node = 16,
  inside = { alpha = 0.6e-6, beta = 1 / 300e9 },
  across = { alpha = 2.7e-6, beta = 1 / 12.5e9 },
  start = 6.6e-6,
  memory = 120e9, memory_speed = 1555e9, f32 = 19.5e12, half = 312e12, launch = 2e-6,
}

-- DGX-2, of 16 V100 of 32 GB with eight adapters of 100 Gb/s (nnScaler, section 8.3.1). Three times
-- the memory: the paper recomputes all activations, these plans save them.
return {
  nodes = 2, per_node = 16, nics = 8,
  inside = { alpha = 0.6e-6, beta = 1 / 150e9 },
  across = { alpha = 2.7e-6, beta = 1 / 12.5e9 },
  start = 6.6e-6,
  memory = 96e9, memory_speed = 900e9, f32 = 15.7e12, half = 125e12, launch = 2e-6,
}

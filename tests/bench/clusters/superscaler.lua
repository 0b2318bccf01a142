-- Servers of eight V100 of 32 GB with NVLink, and one network of 100 Gb/s for each server
-- (SuperScaler, section 6.1; nnScaler's DGX-1 of section 8.3.5 have no more). Three times the
-- memory: the papers recompute all activations, these plans save them.
return {
  nodes = 4, per_node = 8,
  inside = { alpha = 0.6e-6, beta = 1 / 150e9 },
  across = { alpha = 2.7e-6, beta = 1 / 12.5e9 },
  start = 6.6e-6,
  memory = 96e9, memory_speed = 900e9, f32 = 15.7e12, half = 125e12, launch = 2e-6,
}

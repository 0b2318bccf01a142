-- A cluster with slow devices and links of almost no latency: every split pays.
return {
  nodes = 2, per_node = 4, nics = 4,
  inside = { alpha = 1e-9, beta = 1 / 100e9 },
  across = { alpha = 1e-9, beta = 1 / 20e9 },
  memory_speed = 1e9, f32 = 1e9,
}

return {
  per_node = 4,
  inside = { alpha = 1e-6, beta = 1 / 10e9 },
  memory = 6e6, memory_speed = 20e9, f32 = 0.1e12,
}

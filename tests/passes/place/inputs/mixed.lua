-- Four devices; the last two compute a third as fast as the others and have less memory.
return {
  nodes = 1, per_node = 4, inside = { alpha = 1e-6, beta = 1e-9 },
  memory = 1e6, memory_speed = 1e12, f32 = 3e9,
  devices = { { from = 2, to = 3, f32 = 1e9, memory = 15e3 } },
}

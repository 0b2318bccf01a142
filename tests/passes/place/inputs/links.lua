-- Four devices; the last has a slower link.
return {
  nodes = 1, per_node = 4, inside = { alpha = 1e-6, beta = 1e-9 }, memory_speed = 1e12, f32 = 3e9,
  devices = { { from = 3, to = 3, inside = { alpha = 1e-6, beta = 50e-9 } } },
}

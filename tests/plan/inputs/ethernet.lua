-- Nodes of two with one adapter of 10 Gb/s.
return {
  nodes = 8, per_node = 2, nics = 1,
  inside = { alpha = 1e-6, beta = 1 / 10e9 },
  across = { alpha = 5e-5, beta = 1 / 1.25e9 },
  start = 2e-6,
}

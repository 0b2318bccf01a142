-- Two nodes of two devices; device 1 has a slower link inside its node, and the second node a slower adapter.
return {
  nodes = 2, per_node = 2,
  inside = { alpha = 1e-6, beta = 1 / 100e9 },
  across = { alpha = 10e-6, beta = 1 / 2e9 },
  devices = {
    { from = 1, to = 1, inside = { alpha = 3e-6, beta = 1 / 50e9 } },
    { from = 2, to = 3, across = { alpha = 20e-6, beta = 1 / 1e9 } },
  },
}

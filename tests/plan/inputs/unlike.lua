-- Nodes of two; a device with a slow link inside, a node with a slow adapter, and one with fast ones.
return {
  nodes = 8, per_node = 2, nics = 1,
  inside = { alpha = 1e-6, beta = 1 / 10e9 },
  across = { alpha = 5e-5, beta = 1 / 1.25e9 },
  start = 2e-6,
  devices = {
    { from = 1, to = 1, inside = { alpha = 4e-6, beta = 1 / 2e9 } },
    { from = 2, to = 3, across = { alpha = 9e-5, beta = 1 / 0.5e9 } },
    { from = 4, to = 5, inside = { alpha = 0.5e-6, beta = 1 / 40e9 }, across = { alpha = 1e-5, beta = 1 / 5e9 } },
  },
}

-- Two nodes of two devices, a slow link between them.
local gb = 1e9
return {
  nodes = 2, per_node = 2, nics = 1,
  inside = { alpha = 1e-6, beta = 1 / (100 * gb) },
  across = { alpha = 1e-5, beta = 1 / (math.max(1, 2) * gb) },
  start = 0,
}

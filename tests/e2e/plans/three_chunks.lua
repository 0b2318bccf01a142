-- Interleaved stages, three on each rank: twelve on four, which divide no model here.

function step(axis)
  place(axis, { chunks = 3 })
  schedule("interleaved:3")
end

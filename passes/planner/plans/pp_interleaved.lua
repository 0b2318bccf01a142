-- Every rank has two chunks of the model, so that it waits half as long for its first (Narayanan et al. 2021).

function step(axis)
  place(axis, { chunks = 2 })
  schedule("interleaved:2")
end

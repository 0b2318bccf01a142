-- Two stages per rank, from the first rank to the last and back, with separate weight gradients (Qi
-- et al. 2024).

function step(axis)
  place(axis, { chunks = 2, back = true })
  schedule("zb-v")
end

-- Two chunks of the model on every rank, through the ranks and back, and gradients of weights apart (Qi et al. 2024).

function step(axis)
  place(axis, { chunks = 2, back = true })
  schedule("zb-v")
end

-- Megatron-LM's interleaved stages: every rank has three chunks of the model.

function step(axis)
  place(axis, { chunks = 3 })
  schedule("interleaved:3")
end

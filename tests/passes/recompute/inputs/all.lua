-- Recomputes all ops of the model.
function model()
  recompute(ops(nil, "forward"))
end

function step(axis)
  apply("dp", axis)
end

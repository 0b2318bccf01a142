function model()
  recompute { ops("linear")[1], ops("gelu")[1], ops("linear")[2] }
end
function step(axis) apply("dp", axis) end

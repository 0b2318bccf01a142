-- Two pairs of products over ranks, and each is a list of recomputed ops.

function model()
  local product, gelu = ops("linear"), ops("gelu")
  recompute { product[1], gelu[1], product[2] }
  recompute { product[3], gelu[2], product[4] }
end

function step(axis)
  apply("tp", axis)
end

-- Four pairs of products over ranks, and each is a list of recomputed ops.

function model()
  local product, gelu = ops("linear"), ops("gelu")
  for i = 1, 4 do
    recompute { product[2 * i - 1], gelu[i], product[2 * i] }
  end
end

function step(axis)
  apply("tp", axis)
end

-- Two groups: each product of %x and a table, and the gelu after it.
function model()
  local products, gelus = ops("linear"), ops("gelu")
  recompute({ products[1], gelus[1] })
  recompute({ products[2], gelus[2] })
end
function step(axis) apply("dp", axis) end

-- The first product on rank 0, the second on ranks 1 and 2, which share its columns.
function step(axis)
  local products = ops("linear", "forward")
  op_assign(products[1], 0, axis)
  op_assign(products[2], { 1, 2 }, axis)
  op_trans(products[2], "n", axis)
end

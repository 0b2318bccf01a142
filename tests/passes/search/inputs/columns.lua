-- The first product is cut by columns, whatever that costs; the rest is searched.
function step(axis)
  local first = ops("linear", "forward")[1]
  op_trans(first, first:result_letter(1, -1), axis)
  search(axis)
end

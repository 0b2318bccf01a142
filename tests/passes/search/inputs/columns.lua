-- The first product is split by columns, at any cost; the rest is searched.
function step(axis)
  local first = ops("linear", "forward")[1]
  op_trans(first, first:result_letter(1, -1), axis)
  search(axis)
end

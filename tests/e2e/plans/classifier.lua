-- Rows of the batch; the product of the logits is split by its columns, or else by its summed
-- dimension; the rest is searched.

function step(axis)
  local products = ops("linear", "forward")
  local last = products[#products]
  for _, letter in ipairs { last:result_letter(1, -1), last:letter(2, 0) } do
    if not last:split(axis) and can(last, letter, axis) then op_trans(last, letter, axis) end
  end
  for _, x in ipairs(params("input")) do
    if cuts(x, 0, axis) then split(x, 0, axis) end
  end
  search(axis)
end

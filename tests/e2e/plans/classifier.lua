-- Rows of the batch, but of the product that makes the logits its columns, or else what it sums over; whatever else
-- there is is searched.

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

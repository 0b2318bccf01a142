-- Embedding, the product that makes logits and the loss, all cut by words; nothing else.
--
--     h = gather(table, words)     table {S(0)}: a rank finds the words of its part, and zeros for others
--     x = h W                      W {S(1)}: every rank has the logits of its part of the words
--     loss(x, label)               two numbers a row are exchanged, and no logits

-- The product that makes the logits, and what is done to each of them, such as a bias added.
local function maker(logits)
  local op, behind = logits.source.def, {}
  while op and op.elementwise do
    table.insert(behind, op)
    op = op.inputs[1].source.def
  end
  return op, behind
end

function step(axis)
  for _, op in ipairs(ops("gather", "forward")) do
    local words = op:letter(1, 0)
    if op.inputs[1].role == "weight" and op:attribute("axis") == 0 and can(op, words, axis) then
      op_trans(op, words, axis)
    end
  end
  for _, op in ipairs(ops("cross_entropy", "forward")) do
    local logits = op.inputs[1]
    local product, behind = maker(logits)
    local letter = product and product.kind == "linear" and product:result_letter(1, -1)
    local columns = logits.shape[logits.rank]
    if letter and product.outputs[1].shape[product.outputs[1].rank] == columns
      and columns % size(axis) == 0 and can(product, letter, axis) then
      split_loss(op, axis)
      op_trans(product, letter, axis)
      for _, o in ipairs(behind) do op_trans(o, o:result_letter(1, -1), axis) end
    end
  end
end

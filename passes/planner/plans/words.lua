-- Shards the embedding, the logits product and the loss along the vocabulary, and nothing else.
--
--     h = gather(table, words)     table {S(0)}: a rank looks up the words of its shard; others give zeros
--     x = h W                      W {S(1)}: every rank has the logits of its shard of the vocabulary
--     loss(x, label)               exchanges two numbers per row, and no logits

-- Returns the product that computes the logits, and the elementwise ops after it, such as the
-- addition of a bias.
local function maker(logits)
  local op, behind = logits.source.def, {}
  while op and op.elementwise do
    table.insert(behind, op)
    op = op.inputs[1].source.def
  end
  return op, behind
end

-- Returns the ops that compute losses from logits: cross entropies, or the first op of one that is
-- split along another axis.
local function losses()
  local list = ops("cross_entropy", "forward")
  for _, op in ipairs(ops("lse_parts", "forward")) do
    local def = op.inputs[1].def
    if not def or def.kind ~= "lse_parts" then table.insert(list, op) end
  end
  return list
end

function step(axis)
  -- Positions and relative distances are constants, and their tables no vocabularies.
  for _, op in ipairs(ops("gather", "forward")) do
    local words = op:letter(1, 0)
    if op.inputs[1].source.role == "weight" and op.inputs[2].source.role ~= "weight"
      and op:attribute("axis") == 0 and can(op, words, axis) then
      op_trans(op, words, axis)
    end
  end
  for _, op in ipairs(losses()) do
    local logits = op.inputs[1]
    local product, behind = maker(logits)
    local letter = product and product.kind == "linear" and product:result_letter(1, -1)
    local columns = logits.shape[logits.ndim]
    -- Each part of a loss that is split already is split again.
    if op.kind == "lse_parts" then columns = columns // op.outputs[1].shape[logits.ndim] end
    if letter and product:split(axis) ~= letter
      and product.outputs[1].shape[product.outputs[1].ndim] == logits.shape[logits.ndim]
      and columns % size(axis) == 0 and can(product, letter, axis) then
      split_loss(op, axis)
      op_trans(product, letter, axis)
      for _, o in ipairs(behind) do op_trans(o, o:result_letter(1, -1), axis) end
    end
  end
end

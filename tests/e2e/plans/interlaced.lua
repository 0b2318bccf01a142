-- Layers in stages; the embedding and the logits, which are large, over all ranks of all stages,
-- split by words (nnScaler, section 3: the interlaced pipeline).

function step(axis)
  for _, op in ipairs(ops("gather", "forward")) do
    op_trans(op, op:letter(1, 0), axis)
  end
  local layers = ops("linear", "forward")
  local logits = table.remove(layers)
  op_trans(logits, logits:result_letter(1, -1), axis)
  for _, op in ipairs(ops("cross_entropy", "forward")) do split_loss(op, axis) end
  for i, op in ipairs(layers) do
    op_assign(op, (i - 1) * size(axis) // #layers, axis)
  end
end

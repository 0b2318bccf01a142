-- Embedding and logits, which are large and cheap to compute, are split by words over all ranks;
-- the rest is placed on stages; the last has half of the ranks (nnScaler, table 6).

function step(axis)
  for _, op in ipairs(ops("gather", "forward")) do
    if op.inputs[1].trained and op.inputs[1].shape[1] % size(axis) == 0 then op_trans(op, op:letter(1, 0), axis) end
  end
  local layers = ops("linear", "forward")
  local logits = layers[#layers]
  op_trans(logits, logits:result_letter(1, -1), axis)
  for _, op in ipairs(ops("cross_entropy", "forward")) do split_loss(op, axis) end
  local half = size(axis) // 2
  local sizes = { half }
  for i = 1, half do table.insert(sizes, i, 1) end
  place(axis, sizes)
end

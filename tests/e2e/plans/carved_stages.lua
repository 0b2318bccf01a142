-- Layers in stages, placed by themselves; embedding and logits are left, and split by words over all ranks.

function step(axis)
  local stages = place(axis, { ops = layers() })
  assert(#stages >= 1)
  for _, op in ipairs(ops("gather", "forward")) do
    local words = op:letter(1, 0)
    if not op:split(axis) and can(op, words, axis) then op_trans(op, words, axis) end
  end
end

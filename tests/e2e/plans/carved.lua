-- Layers are searched by themselves, the rest given their answer; the embedding in front is split by its words before
-- (nnScaler, algorithm 1: a sub-space, its answer as constraints, and the remaining space).

function step(axis)
  for _, op in ipairs(ops("gather", "forward")) do
    local words = op:letter(1, 0)
    if can(op, words, axis) then op_trans(op, words, axis) end
  end
  local inside = {}
  for _, op in ipairs(ops{ block = layers(), part = "forward" }) do
    if not op:split(axis) then inside[#inside + 1] = op end
  end
  search({ ops = inside }, axis)
  for _, op in ipairs(inside) do assert(op:split(axis)) end
  search(axis)
end

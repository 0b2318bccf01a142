-- Both weights replicated, and their optimizer on every rank.
function step(axis)
  local a, b = params("weight")[1], params("weight")[2]
  split(a, "-", axis)
  split(b, "-", axis)
  for _, o in ipairs(ops(nil, "update")) do op_trans(o, "-", axis) end
  -- This line is not part of the conflict.
  op_trans(ops("relu", "forward")[1], { "0", "1" }, axis)
  search(axis)
end

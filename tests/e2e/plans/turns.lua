-- Products alternately by columns and by summed dimensions, with any ops between.  Nothing is searched.

function step(axis)
  local columns = true
  for _, op in ipairs(ops(nil, "forward")) do
    if (op.kind == "linear" or op.kind == "conv") and op.inputs[2].source.role == "weight" then
      local conv = op.kind == "conv"
      local letter = columns and op:result_letter(1, conv and 1 or -1) or op:letter(2, conv and 1 or 0)
      if can(op, letter, axis) then op_trans(op, letter, axis) end
      columns = not columns
    end
  end
end

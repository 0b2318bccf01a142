-- Two axes: rows of the batch over the outer one; over the inner one the summed dimension of each
-- product, if it can be split; the rest is searched.

function factors(n)
  return { 2, n // 2 }
end

function step(outer, inner)
  apply("dp", outer)
  for _, op in ipairs(ops(nil, "forward")) do
    local weight = op.inputs[2]
    if (op.kind == "linear" or op.kind == "conv") and weight.source.role == "weight" then
      local letter = op:letter(2, op.kind == "conv" and 1 or 0)
      if can(op, letter, inner) then op_trans(op, letter, inner) end
    end
  end
  search(inner)
end

-- Rows of the batch on four ranks: two each, one on the last.
function model()
  local list = {}
  for _, x in ipairs(params("input")) do
    for _, r in ipairs(x.readers) do
      list[#list + 1] = { op = r.op, letter = r.op:letter(r.index, 0) }
    end
  end
  assert(pieces(list, { 2, 2, 2, 1 }))
end

function step(axis)
  for _, op in ipairs(ops(nil, "forward")) do
    if op.piece then op_assign(op, op.piece - 1, axis) end
  end
end

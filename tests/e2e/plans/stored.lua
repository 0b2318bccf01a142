-- Matrices and their states are stored in parts, along the last of their dimensions that can be
-- split; the rest is searched.

function step(axis)
  for _, op in ipairs(ops(nil, "update")) do
    local w = op.inputs[1]
    if w and w.role == "weight" and w.ndim > 1 then
      for dim = w.ndim - 1, 0, -1 do
        local letter = op:result_letter(1, dim)
        if can(op, letter, axis) and cuts(w, dim, axis) then
          op_trans(op, letter, axis)
          store(w, dim, axis)
          break
        end
      end
    end
  end
  search(axis)
end

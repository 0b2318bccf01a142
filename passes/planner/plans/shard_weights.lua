-- Shards the weights with sharded states: the part of zero3 besides zero2.
--
-- A weight is gathered for its forward reader, and again for backward.

function step(axis)
  for _, op in ipairs(ops(nil, "update")) do
    local w = op.inputs[1]
    local letter = op:split(axis)
    if w and w.role == "weight" and letter then
      for dim = 0, w.ndim - 1 do
        if op:letter(1, dim) == letter and cuts(w, dim, axis) then store(w, dim, axis) end
      end
    end
  end
end

-- Shards the gradients of weights with sharded states: the part of zero2 besides zero1.
--
-- If a step has several micro-batches, the gradient of each is reduced separately, so that the
-- accumulator is only a shard: the gradient is pinned to a sharded layout before accumulation.

function step(axis)
  for _, op in ipairs(ops(nil, "update")) do
    local w, gradient = op.inputs[1], op.inputs[2]
    local letter = op:split(axis)
    if w and w.role == "weight" and letter and gradient and gradient.def then
      for dim = 0, gradient.ndim - 1 do
        if op:letter(2, dim) == letter then
          local pinned = pin(gradient)
          op_trans(pinned, pinned:letter(1, dim), axis)
        end
      end
    end
  end
end

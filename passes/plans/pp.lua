-- Stages of a pipeline: runs of the model's ops, of about the same work each, on one rank of the axis after
-- the other.
--
-- Only ops that compute something are assigned.  What only turns or cuts values follows them, and so do weights,
-- gradients and the optimizer.

function step(axis)
  local list, total = {}, 0
  for _, op in ipairs(ops(nil, "forward")) do
    if op.flops > 0 then
      list[#list + 1] = op
      total = total + op.flops
    end
  end
  local done = 0
  for _, op in ipairs(list) do
    op_assign(op, math.floor(size(axis) * (done + op.flops / 2) / total), axis)
    done = done + op.flops
  end
end

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
  local done, last = 0, size(axis) - 1
  for _, op in ipairs(list) do
    local stage = math.floor((last + 1) * (done + op.flops / 2) / total)
    op_assign(op, math.min(stage, last), axis) -- the least of ops is lost beside the total
    done = done + op.flops
  end
end

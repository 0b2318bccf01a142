-- Data parallelism: every rank has its rows of the batch, and all weights.
--
-- What is computed from rows is cut as they are; the gradient of a weight is a sum over rows, so
-- each rank has a share of it, and an all_reduce adds them up.

function step(axis)
  local n = size(axis)
  for _, x in ipairs(params("input")) do
    if x.rank == 0 then
      refuse(x, ("input '%s' is a scalar, so it has no batch to cut in %d"):format(x.name, n))
    elseif not cuts(x, 0, axis) then
      refuse(x, ("the batch of input '%s' is %d, which cannot be cut in %d along %s: give a --batch "
                 .. "that ranks times micro-batches divides"):format(x.name, x.shape[1], n, axis))
    else
      split(x, 0, axis)
    end
  end
end

-- Data parallelism: every rank has its rows of the batch, and all weights.
--
-- What is computed from rows is cut as they are; the gradient of a weight is a sum over rows, so
-- each rank has a share of it, and an all_reduce adds them up.

function step(axis)
  for _, x in ipairs(params("input")) do
    local can, why = x.rank > 0, ""
    if can and not x.whole then can, why = cuts(x, 0, axis) end
    if x.whole then
      split(x, "-", axis)
    elseif can then
      split(x, 0, axis)
    elseif x.rank == 0 then
      refuse(x, ("input '%s' is a scalar, so it has no batch to cut in %d"):format(x.name, size(axis)))
    else
      refuse(x, why .. ": give a --batch that ranks times micro-batches divides")
    end
  end
end

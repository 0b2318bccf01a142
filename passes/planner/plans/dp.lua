-- Data parallelism: every rank has its rows of the batch, and all weights.
--
-- Values computed from rows are sharded along these rows. The gradient of a weight sums over rows,
-- so it is a partial sum, and an all_reduce completes it.

function step(axis)
  for _, x in ipairs(params("input")) do
    local can, why = x.ndim > 0, ""
    if can and not x.whole then can, why = cuts(x, 0, axis) end
    if x.whole then
      split(x, "-", axis)
    elseif can then
      split(x, 0, axis)
    elseif x.ndim == 0 then
      refuse(x, ("input '%s' is a scalar, so it has no batch to split into %d"):format(x.name, size(axis)))
    else
      refuse(x, why .. ": give a --batch that ranks times micro-batches divides")
    end
  end
end

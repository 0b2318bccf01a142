-- Context parallelism: tokens are sharded, and attention is a ring (Li et al. 2021; Liu et al. 2023).
--
-- Every rank has its tokens of each row of the batch, and all weights: whatever treats tokens alike
-- needs no communication, and the gradient of a weight is a sum over ranks. In attention a rank keeps
-- its queries; keys and values go from rank to rank while it attends to those at hand. Causal
-- attention exchanges pieces first, so that each rank has an early and a late one and sees as much as
-- the others.

function step(axis)
  apply("tokens", axis)
  for _, op in ipairs(ops("attention")) do
    local done, why = ring(op, axis)
    if not done then
      refuse(op, ("attention cannot be a ring of %d ranks: %s"):format(size(axis), why))
    end
  end
end

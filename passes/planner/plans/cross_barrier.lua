-- Cross barrier: data parallelism, and a step does not wait for the gradients of the one before but where it reads what they
-- update (ByteScheduler: Peng et al. 2019).
--
-- Gradients of the first layers are reduced before those of the last, where both are ready, and updates are done in the next
-- step. Losses and weights are the same numbers.
--
-- It needs no ranks: `--plan dp=2,tp=2,cross_barrier=1` does this to that plan.

function model()
  cross_barrier()
end

function step(axis)
  apply("dp", axis)
end

-- Cross barrier: data parallelism without a barrier between steps. A step waits for the gradients
-- of the previous step only before it reads the weights that they update (ByteScheduler: Peng et
-- al. 2019).
--
-- Among ready gradients, those of the first layers are reduced before those of the last, and
-- updates run in the next step. Losses and weights are the same numbers.
--
-- An axis of size 1 suffices: `--plan dp=2,tp=2,cross_barrier=1` applies this to that plan.

function model()
  cross_barrier()
end

function step(axis)
  apply("dp", axis)
end

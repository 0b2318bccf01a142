-- Context parallelism with ZeRO, stage 1, over the same ranks: they have the same weights, as those of dp.

function step(axis)
  apply("cp", axis)
  apply("shard_states", axis)
  apply("shard_masters", axis)
end

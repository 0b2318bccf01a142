-- ZeRO, stage 3: as stage 2, with weights sharded too (shard_weights.lua).

function step(axis)
  apply("dp", axis)
  apply("shard_states", axis)
  apply("shard_gradients", axis)
  apply("shard_weights", axis)
end

-- ZeRO, stage 2: as stage 1, with gradients sharded too (shard_gradients.lua).

function step(axis)
  apply("zero1", axis)
  apply("shard_gradients", axis)
end

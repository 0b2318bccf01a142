-- ZeRO, stage 3: as stage 2, with weights sharded too (shard_weights.lua).

function step(axis)
  apply("zero2", axis)
  apply("shard_weights", axis)
end

-- ZeRO, stage 1: data parallelism with sharded optimizer states (shard_states.lua), and in 16 bits with
-- sharded f32 weights (shard_masters.lua).

function step(axis)
  apply("dp", axis)
  apply("shard_states", axis)
  apply("shard_masters", axis)
end

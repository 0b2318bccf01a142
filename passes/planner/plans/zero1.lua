-- ZeRO, stage 1: data parallelism with sharded optimizer states (shard_states.lua).

function step(axis)
  apply("dp", axis)
  apply("shard_states", axis)
end

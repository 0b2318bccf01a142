-- Activation checkpointing, one piece at a time: activations split by co-shard are recomputed right
-- before the gradients of each piece.
--
-- Fewer recomputed activations are resident at once than with `recompute`, and some ops are recomputed
-- twice. For layers whose pieces together exceed the memory: `--plan coshard=1,recompute_pieces=1`.
-- Most saved activations are then the ones passed from layer to layer. Two layers per list halve
-- these, and keep one piece of two layers resident at once.

local count = 1 -- layers per list

function model()
  local lists = layers()
  for first = 1, #lists, count do
    local list = {}
    for i = first, math.min(first + count - 1, #lists) do
      for _, op in ipairs(lists[i]) do list[#list + 1] = op end
    end
    recompute(list, true)
  end
end

function step(axis)
  apply("dp", axis)
end

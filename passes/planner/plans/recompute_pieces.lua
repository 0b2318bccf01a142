-- Activation checkpointing, one piece at a time: activations split by co-shard are recomputed right
-- before the gradients of each piece.
--
--     --plan coshard=1,recompute_pieces=1      of layers in two pieces
--     --plan recompute_pieces:4@1-4=8          with the numbers of coshard: layers 1 to 4 in four
--
-- Fewer recomputed activations are resident at once than with `recompute`, and some ops are recomputed
-- twice. For layers whose pieces together exceed the memory. Most saved activations are then the
-- ones passed from layer to layer. Two layers per list halve these, and keep one piece of two layers
-- resident at once.

local count = 1 -- layers per list
local pieces    -- coshard with its numbers, or nil: the model is in pieces already

function numbers(list)
  pieces = "coshard"
  for _, number in ipairs(list) do pieces = pieces .. ":" .. number.text end
end

function model()
  if pieces then apply(pieces) end
  local lists = layers()
  for first = 1, #lists, count do
    local list = {}
    for i = first, math.min(first + count - 1, #lists) do list[#list + 1] = lists[i] end
    recompute(list, true)
  end
end

function step(axis)
  apply("dp", axis)
end

-- Recompute, one piece at a time: what co-shard has cut is computed anew right before the gradients of each piece.
--
-- So less of it is there at once than with recompute, and some of it is computed twice: for where the pieces of a layer
-- together need more memory than there is. As in `--plan coshard=1,recompute_pieces=1`. What layers hand to each other
-- is then most of what is kept; with two layers in a list it is half of that, and a piece's part of two is there at once.

local count = 1 -- layers in a list

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

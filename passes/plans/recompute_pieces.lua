-- Recompute, one piece at a time: what co-shard has cut is computed anew right before the gradients of each piece.
--
-- So less of it is there at once than with recompute, and some of it is computed twice: for where the pieces of a layer
-- together need more memory than there is. As in `--plan coshard=1,recompute_pieces=1`.

function model()
  for _, list in ipairs(layers()) do recompute(list, true) end
end

function step(axis)
  apply("dp", axis)
end

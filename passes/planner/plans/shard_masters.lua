-- Shards the f32 weights of a step in 16 bits like their states: the part of zero1 besides
-- shard_states.
--
--     w f32 {S(0)}      %0 = cast w            bf16 {S(0)}
--                       %1 = all_gather %0     bf16        once in a step; all readers share it
--
-- The update reads and writes its own part of a weight only. The model reads 16 bits: these are gathered,
-- half the bytes of the new weight. A weight that is read in f32, as those of norms, stays whole.

-- Returns the 16-bit cast through which forward and backward read a weight, if there is one. Backward may
-- recompute it.
local function narrow_cast(w)
  local cast
  for _, r in ipairs(w.readers) do
    if r.op.part ~= "update" then
      if r.op.kind ~= "cast" or r.op.outputs[1].dtype == "f32" then return end
      if r.op.part == "forward" then
        if cast then return end
        cast = r.op
      end
    end
  end
  return cast
end

function step(axis)
  for _, op in ipairs(ops(nil, "update")) do
    local w = op.inputs[1]
    local letter = op:split(axis)
    local cast = w and w.role == "weight" and w.ndim > 1 and letter and narrow_cast(w)
    for dim = 0, cast and w.ndim - 1 or -1 do
      if op:letter(1, dim) == letter and cuts(w, dim, axis) then
        store(w, dim, axis)
        pin(cast.outputs[1], "all")
        break
      end
    end
  end
end

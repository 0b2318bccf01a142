-- Several stages per rank, which shortens the time until a rank has its first work (Narayanan et al.
-- 2021).
--
--     --plan pp_interleaved=8        two chunks of the model on each of 8 ranks
--     --plan pp_interleaved:4=8      four
local asked

function numbers(list)
  asked = list
end

function step(axis)
  local chunks = asked and asked[1] or { n = 2 }
  if asked and #asked > 1 or chunks.first then
    refuse(asked[#asked], "one number of chunks is for all ranks and layers")
  elseif chunks.n < 2 then
    refuse(chunks, "interleaved stages have two chunks or more on each rank")
  else
    place(axis, { chunks = chunks.n })
    schedule("interleaved:" .. chunks.n)
  end
end

-- Several stages per rank, which shortens the time until a rank has its first work (Narayanan et al.
-- 2021).
--
--     --plan pp_interleaved=8            two chunks of the model on each of 8 ranks
--     --plan pp_interleaved:4=8          four
--     --plan pp_interleaved:3:4:4:3=2    so many layers on each stage, in order: two chunks on each of 2 ranks
local asked

function numbers(list)
  asked = list
end

-- So many layers on each stage, as in pp.
local function deal(axis)
  local layers_of, chunks = "", #asked // size(axis)
  for _, number in ipairs(asked) do layers_of = layers_of .. ":" .. number.text end
  if #asked % size(axis) ~= 0 or chunks < 2 then
    local text = "%d numbers of layers for %d ranks: give %d, one for each stage, or a greater multiple of %d"
    refuse(asked[#asked], text:format(#asked, size(axis), 2 * size(axis), size(axis)))
    return
  end
  schedule("interleaved:" .. chunks)
  apply("pp" .. layers_of, axis)
end

function step(axis)
  local chunks = asked and asked[1] or { n = 2 }
  if asked and #asked > 1 then
    deal(axis)
  elseif chunks.first then
    refuse(chunks, "one number of chunks is for all ranks and layers")
  elseif chunks.n < 2 then
    refuse(chunks, "interleaved stages have two chunks or more on each rank")
  else
    place(axis, { chunks = chunks.n })
    schedule("interleaved:" .. chunks.n)
  end
end

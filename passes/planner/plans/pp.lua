-- Pipeline stages in the order of the model on the ranks of the axis. Minimises the slowest stage's
-- time for computation, sending and receiving, within the memory of each rank.
--
--     --plan pp=4                  any part of the model on each of 4 stages
--     --plan pp:9:10:10:11=4       so many layers on each stage, in order
--     --plan pp:19:20:20:21=4      of the same 40 layers, each with an attention and a feed-forward: so many of these
--
-- Numbers that add up to all parts of layers are of parts (layer_parts), others of whole layers.
-- Ops before the first layer are on the first stage, those after a layer on the stage of that layer.
-- Twice as many numbers as ranks are two stages of each rank, and so on: ranks get them in rounds.

local asked

function numbers(list)
  asked = list
end

local function sum()
  local n = 0
  for _, number in ipairs(asked) do n = n + number.n end
  return n
end

-- "1 layer", "2 layers"
local function count(n, noun)
  return ("%d %s%s"):format(n, noun, n == 1 and "" or "s")
end

-- The ops of each stage.
local function deal()
  local all, parts, lists, from = layers(), layer_parts(), {}, 1
  local there = count(#all, "layer") .. (#parts > #all and (", or %d parts of layers"):format(#parts) or "")
  local wrong = ("the model has %s, and the numbers add up to %d"):format(there, sum())
  if sum() == #parts then all = parts end
  for i, number in ipairs(asked) do
    if number.first then
      refuse(number, "stages have the layers in order, so the number of each is enough")
      return
    elseif from + number.n - 1 > #all then
      refuse(number, wrong)
      return
    end
    lists[i] = {}
    for k = from, from + number.n - 1 do
      for _, op in ipairs(all[k]) do lists[i][#lists[i] + 1] = op end
    end
    from = from + number.n
  end
  if from <= #all then
    refuse(asked[#asked], wrong)
    return
  end
  return lists
end

-- Whether the evaluation has other layers than training: with fewer ops, others repeat.
local function differs()
  return graph() == "eval" and #layers() ~= sum() and #layer_parts() ~= sum()
end

function step(axis)
  if not asked or differs() then
    place(axis, size(axis))
  elseif #asked % size(axis) ~= 0 then
    local text = "%s of layers for %d ranks: give %d, one for each stage, or a multiple of %d"
    refuse(asked[#asked], text:format(count(#asked, "number"), size(axis), size(axis), size(axis)))
  else
    local lists = deal()
    if lists then place(axis, { deal = lists, numbers = asked }) end
  end
end

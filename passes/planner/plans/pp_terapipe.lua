-- Pipeline stages that process each micro-batch in pieces of its tokens (Li et al. 2021). A stage
-- runs one piece while the next stage runs the piece before it, so few micro-batches of long
-- sequences fill a pipeline. A token may depend only on earlier tokens, as in causal attention: a
-- piece reads the keys and values of all pieces up to itself.

local sizes = { 1, 1, 1, 1 } -- relative sizes of pieces; { 4, 3, 3, 2 }: later ones attend to more
                             -- and are shorter

local sum = 0
for _, size in ipairs(sizes) do sum = sum + size end
if #sizes < 2 then error("'sizes' wants two pieces or more: of whole micro-batches, pp has the same stages") end

-- The end of error messages: the alternative.
local else_ = "; pp and the other plans of stages split no tokens"

-- Whether a result of the op has the letter. An op that sums over it reads features there, for
-- example, not tokens.
local function keeps(op, letter)
  for i, v in ipairs(op.outputs) do
    for dim = 0, v.ndim - 1 do
      if op:result_letter(i, dim) == letter then return true end
    end
  end
  return false
end

-- Ops that read tokens, such as an embedding, each with the letter of its tokens: the second
-- dimension of an input. Labels are split at the op that also reads logits. Also returns an input
-- that the sizes do not divide.
local function readers()
  local list, short = {}, nil
  for _, x in ipairs(params("input")) do
    for _, r in ipairs(x.ndim > 1 and x.readers or {}) do
      local letter = r.op:letter(r.index, 1)
      if letter and keeps(r.op, letter) then
        if x.shape[2] % sum ~= 0 then short = x end
        list[#list + 1] = { op = r.op, letter = letter }
      end
    end
  end
  return list, short
end

function model()
  local list, short = readers()
  if short then
    refuse(short, short.shape[2] .. " tokens are not " .. sum .. " parts of as many each, as pieces have: a copy of "
      .. "passes/planner/plans/pp_terapipe.lua can have other 'sizes'" .. else_)
  elseif #list == 0 then
    refuse(params("input")[1], "the model reads no tokens: no input has any in its second dimension" .. else_)
  else
    local done, obstacle = pieces(list, sizes)
    if not done and obstacle and obstacle.kind == "attention" then
      refuse(obstacle, "attention that is not causal has every token wait for all others, and pieces of them go through "
        .. "the stages one after the other" .. else_)
    elseif not done then
      refuse(obstacle or list[1].op, "this mixes tokens, and pieces of them go through the stages one after the other, of "
        .. "which only causal attention may read those before" .. else_)
    end
  end
end

function step(axis)
  place(axis, { pieces = true })
  schedule("terapipe:" .. #sizes)
end

-- Half of every micro-batch goes through the stages from the first rank to the last, the other half
-- in the opposite direction, so a rank that waits for one half can run the other. Every rank has
-- two stages, so every weight is on two ranks, and their gradients are summed (Li and Hoefler
-- 2021).

function model()
  local list = {}
  for _, x in ipairs(params("input")) do
    if x.ndim > 0 and not x.whole and x.shape[1] % 2 == 1 then
      refuse(x, "a batch of " .. x.shape[1] .. " has no halves, of which each would go its way: give an even --batch")
      return
    end
    for _, r in ipairs(x.whole and {} or x.readers) do
      local rows = r.op:letter(r.index, 0)
      if rows then list[#list + 1] = { op = r.op, letter = rows } end
    end
  end
  local done, obstacle = pieces(list, 2, true)
  if done then return end
  local cannot = " cannot be split into two pieces of its rows"
  if not obstacle then
    refuse(params("input")[1], "the model" .. cannot)
  elseif obstacle.loss then
    refuse(obstacle, "the loss" .. cannot .. ": a single --loss can, without label_smoothing")
  elseif obstacle.kind == "dropout" then
    refuse(obstacle, "the model" .. cannot .. ": a dropout draws its random numbers for all rows together")
  else
    refuse(obstacle, "the model" .. cannot .. ": " .. obstacle.kind .. " needs all of them")
  end
end

function step(axis)
  place(axis, { ways = 2 })
  schedule("chimera")
end

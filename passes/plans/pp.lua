-- Stages of a pipeline: runs of the model's ops, of about the same work each, on one rank of the axis after
-- the other.
--
-- A stage ends where the least of what is computed before is read behind, among the places that are near
-- where the work would be the same: between blocks of a model and not inside one.  Only ops that compute
-- something are assigned; what turns or cuts values follows them, and so do weights, gradients and the
-- optimizer.

local near = 0.2 -- of a stage's work

local function elements(v)
  local n = 1
  for _, length in ipairs(v.shape) do n = n * length end
  return n
end

-- For every op of the list how many elements it or later ones read of what those before it make.
local function crossings(list)
  local at, change = {}, {}
  for i, op in ipairs(list) do at[op] = i end
  for i, op in ipairs(list) do
    for _, v in ipairs(op.outputs) do
      local last = i
      for _, r in ipairs(v.readers) do last = math.max(last, at[r.op] or 0) end
      if last > i then
        change[i + 1] = (change[i + 1] or 0) + elements(v)
        change[last + 1] = (change[last + 1] or 0) - elements(v)
      end
    end
  end
  local sum, crossing = 0, {}
  for i = 1, #list do
    sum = sum + (change[i] or 0)
    crossing[i] = sum
  end
  return crossing
end

-- The first op of the stage that begins where about `target` was done: of those from `first` on where that is off by
-- little more than it must be, the one that least crosses to.
local function boundary(crossing, before, first, target, stage_work)
  local function off(i) return math.abs(before[i] - target) / stage_work end
  local least, best = math.huge, first
  for i = first, #before do least = math.min(least, off(i)) end
  for i = #before, first, -1 do
    if off(i) <= least + near and (off(best) > least + near or crossing[i] <= crossing[best]) then best = i end
  end
  return best
end

function step(axis)
  local list, before, total = ops(nil, "forward"), {}, 0
  for i, op in ipairs(list) do
    before[i] = total
    total = total + op.flops
  end
  local crossing, stages, first = crossings(list), size(axis), 1
  for stage = 1, stages do
    local behind = #list + 1
    if stage < stages then behind = boundary(crossing, before, first, total * stage / stages, total / stages) end
    for i = first, behind - 1 do
      if list[i].flops > 0 then op_assign(list[i], stage - 1, axis) end
    end
    first = behind
  end
end

-- ZeRO, stage 1: data parallelism, and each rank keeps its part of the optimizer's states.
--
-- The optimizer of a weight splits one of its dimensions, so states lie so, the gradient is wanted
-- so (a reduce_scatter instead of an all_reduce), and the new weight is gathered.

-- A dimension of the weight, the first that can be cut and that no other axis cuts: parts of parts would
-- have to be put together first.
local function free_letter(op, axis)
  for dim = 0, op.outputs[1].rank - 1 do
    local letter = op:result_letter(1, dim)
    if can(op, letter, axis) and not op:taken(letter) then return letter, dim end
  end
end

function step(axis)
  apply("dp", axis)
  for _, op in ipairs(ops(nil, "update")) do
    local w = op.inputs[1]
    if w and w.role == "weight" then
      local letter, dim = free_letter(op, axis)
      if letter then
        op_trans(op, letter, axis)
        -- What else reads the gradient (its norm, to clip it) takes the same part.
        for _, r in ipairs(op.inputs[2] and op.inputs[2].readers or {}) do
          local same = r.op:letter(r.index, dim)
          if r.op ~= op and r.op.part == "update" and can(r.op, same, axis) then op_trans(r.op, same, axis) end
        end
      end
    end
  end
end

-- Shards the optimizer states over ranks that have the same weights: the part of zero1 without dp.
--
-- The optimizer op of a weight splits one of its dimensions: states have that layout, the gradient
-- is reduced to it (a reduce_scatter instead of an all_reduce), and the new weight is gathered.

-- Returns the first dimension of the weight that can be split and that no other axis splits: shards
-- of shards would need an additional gather.
local function free_letter(op, axis)
  for dim = 0, op.outputs[1].ndim - 1 do
    local letter = op:result_letter(1, dim)
    if can(op, letter, axis) and not op:taken(letter) then return letter, dim end
  end
end

function step(axis)
  for _, op in ipairs(ops(nil, "update")) do
    local w = op.inputs[1]
    if w and w.role == "weight" then
      local letter, dim = free_letter(op, axis)
      if letter then
        op_trans(op, letter, axis)
        -- Other readers of the gradient, such as its norm for clipping, take the same shard.
        for _, r in ipairs(op.inputs[2] and op.inputs[2].readers or {}) do
          local same = r.op:letter(r.index, dim)
          if r.op ~= op and r.op.part == "update" and can(r.op, same, axis) then op_trans(r.op, same, axis) end
        end
      end
    end
  end
end

-- TAP's plan "MHA only" (section 6.4.2): attentions are sharded by heads, all else is replicated.
-- Feed-forwards are then computed by all ranks, without communication.

-- Shards products by columns if their weights have such names, and the split ends in sums of later products.
local function shard(names, axis)
  for _, op in ipairs(ops("linear", "forward")) do
    local columns = op:result_letter(1, -1)
    if glob(names, op.inputs[2].source.name or "") and can(op, columns, axis) and not op:split(axis) then
      local ends, stops = flow(op, columns, axis)
      if #ends > 0 and #stops == 0 then op_trans(op, columns, axis) end
    end
  end
end

function step(axis)
  for _, part in ipairs{ "q", "k", "v" } do shard("*." .. part, axis) end
end

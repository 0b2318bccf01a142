-- TAP's plans that shard one part of each layer (section 6.4.2): all ranks compute the other part, without
-- communication.
--
--     shard_parts.lua:1     "MHA only": attentions, by heads
--     shard_parts.lua:2     "FFN only": feed-forwards, by hidden columns

local weights = { { "*.q", "*.k", "*.v" }, { "*.up" } }
local part = 1

function numbers(list)
  part = list[1].n
end

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
  for _, names in ipairs(weights[part]) do shard(names, axis) end
end

-- Recompute: data parallelism, and backward computes the inside of layers anew (Chen et al. 2016).
--
-- What repeats in the model, a layer mostly, is a list of its own: of each only what it reads of others is
-- kept from forward to backward. Where nothing repeats, there are as many lists as ops in each: as many values
-- are kept then as are made anew at a time.
--
-- It needs no ranks: `--plan tp=4,recompute=1` does this to what tp makes of the model.

-- The ops before the loss, in parts.
local function parts()
  local list, all, n = {}, ops(), 0
  for i, op in ipairs(all) do
    if op.kind == "cross_entropy" then break end
    n = i
  end
  local length = math.ceil(n ^ 0.5)
  for i = 1, n, length do list[#list + 1] = { table.unpack(all, i, math.min(i + length - 1, n)) } end
  return list
end

function model()
  for _, list in ipairs(blocks()[1] or parts()) do recompute(list) end
end

function step(axis)
  apply("dp", axis)
end

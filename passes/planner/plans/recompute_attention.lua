-- Selective recompute: data parallelism, and backward computes the inner part of attentions anew, which
-- takes much memory and little time (Korthikanti et al. 2022, section 5).
--
-- That is all between the products with weights that make q, k and v, and the one that follows: heads taken
-- apart, scores, softmax, dropout, the sum of values, heads put together.
--
-- It needs no ranks: `--plan tp=4,recompute_attention=1` does this to what tp makes of the model.

local function has_weight(op)
  return op.kind == "linear" or op.kind == "conv"
end

-- Adds `op`, all that it is made of and all that is made of it, up to products with weights. What several
-- attentions share, a mask say, is of the first.
local function inner(op, list, seen)
  local function up(v)
    local def = v.def
    if not def or seen[def] or has_weight(def) then return end
    seen[def] = true
    list[#list + 1] = def
    for _, x in ipairs(def.inputs) do up(x) end
  end
  local function down(v)
    for _, r in ipairs(v.readers) do
      if r.op and not seen[r.op] and not has_weight(r.op) then
        seen[r.op] = true
        list[#list + 1] = r.op
        for _, y in ipairs(r.op.outputs) do down(y) end
      end
    end
  end
  for _, y in ipairs(op.outputs) do
    up(y)
    down(y)
  end
end

function model()
  local seen = {}
  for _, kind in ipairs { "attention", "softmax" } do
    for _, op in ipairs(ops(kind)) do
      local list = {}
      if not seen[op] then inner(op, list, seen) end
      if #list > 0 then recompute(list) end
    end
  end
end

function step(axis)
  apply("dp", axis)
end

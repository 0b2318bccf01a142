-- Selective activation recomputation: data parallelism, and backward recomputes the inner part of
-- attentions, with large activations and little computation (Korthikanti et al. 2022, section 5).
--
-- The inner part is all ops between the weight products that produce q, k and v and the next weight
-- product: the split into heads, scores, softmax, dropout, the weighted sum of values, the
-- concatenation of heads.
--
--     --plan recompute_attention=8             of all layers
--     --plan recompute_attention:4@1-12=8      of 4 of layers 1 to 12, the first ones, as in recompute
--
-- An axis of size 1 suffices: `--plan tp=4,recompute_attention=1` applies this to the program of
-- tp.

local asked -- { n = layers, first =, last = the layers that they are of }

function numbers(list)
  asked = list
end

-- The ops of the layers that are asked for; nil: all ops.
local function asked_ops()
  if not asked then return nil end
  local found = {}
  for _, layer in ipairs(layers(asked)) do
    for _, op in ipairs(layer) do found[op] = true end
  end
  return found
end

local function has_weight(op)
  return op.kind == "linear" or op.kind == "conv"
end

-- Whether the softmax is that of a router, which has experts chosen before it or after it. The ops after it, up to products
-- with weights, are experts and residual sums to the end of the model, and no attention.
local function routes(op)
  local function follow(next)
    local reached, list = { [op] = true }, { op }
    for _, at in ipairs(list) do
      if at.kind == "top_k" or at.kind == "grouped_linear" then return true end
      for _, other in ipairs(next(at)) do
        if not reached[other] and not has_weight(other) then
          reached[other] = true
          list[#list + 1] = other
        end
      end
    end
    return false
  end
  local function readers(at)
    local all = {}
    for _, y in ipairs(at.outputs) do
      for _, r in ipairs(y.readers) do all[#all + 1] = r.op end
    end
    return all
  end
  local function producers(at)
    local all = {}
    for _, x in ipairs(at.inputs) do all[#all + 1] = x.def end
    return all
  end
  return follow(readers) or follow(producers)
end

-- Adds `op`, its transitive producers and its transitive readers, up to products with weights. An
-- op shared by several attentions, such as a mask, belongs to the first.
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
  local seen, among = {}, asked_ops()
  for _, kind in ipairs { "attention", "softmax" } do
    for _, op in ipairs(ops(kind)) do
      local list = {}
      if not seen[op] and (not among or among[op]) and not routes(op) then inner(op, list, seen) end
      if #list > 0 then recompute(list) end
    end
  end
end

function step(axis)
  apply("dp", axis)
end

-- Co-shard: data parallelism, and products in pieces that a rank computes one after the other
-- (nnScaler, table 5).
--
-- Pairs of products, as tensor parallelism has them, are cut as it cuts them: heads of an attention,
-- columns of a hidden layer. But the pieces stay on one rank, and nothing is communicated. Less of what
-- lies between the two products is made at a time; the gradients still want all of it, as long as nothing
-- is computed anew for them.

local count = 2 -- pieces

-- The products of weights with `x` that were not cut yet, each with its columns.
local function products(x, cut)
  local list = {}
  for _, r in ipairs(x.readers) do
    local op = r.op
    if op.kind == "linear" and op.inputs[2].source.role == "weight" and not cut[op.name] and op:result_letter(1, -1) then
      list[#list + 1] = { op = op, letter = op:result_letter(1, -1) }
    end
  end
  return list
end

local function cut_one(cut)
  for _, op in ipairs(ops("linear")) do
    local list = products(op.inputs[1], cut)
    if #list > 0 then
      for _, p in ipairs(list) do cut[p.op.name] = true end
      if pieces(list, count) then return true end
    end
  end
  return false
end

function model()
  apply("tp")
  local cut = {}
  repeat until not cut_one(cut)
end

function step(axis)
  apply("dp", axis)
end

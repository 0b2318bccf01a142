-- Co-shard: data parallelism, and products in pieces that a rank computes one after the other
-- (nnScaler, table 5).
--
-- Pairs of products, as tensor parallelism has them, are cut as it cuts them: heads of an attention,
-- columns of a hidden layer. But the pieces stay on one rank, and nothing is communicated. Less of what
-- lies between the two products is made at a time; the gradients still want all of it, as long as nothing
-- is computed anew for them.

local count = 2 -- pieces

-- The products of weights with `x` that are whole, each with its columns.
local function products(x)
  local list = {}
  for _, r in ipairs(x.readers) do
    local op = r.op
    if op.kind == "linear" and op.inputs[2].source.role == "weight" and not op.piece and op:result_letter(1, -1) then
      list[#list + 1] = { op = op, letter = op:result_letter(1, -1) }
    end
  end
  return list
end

function model()
  apply("tp")
  local i = 1
  while ops("linear")[i] do
    local op = ops("linear")[i]
    local list = products(op.inputs[1])
    -- Products with one value are tried once; where they are cut, another op is the i-th.
    local first = #list > 0 and list[1].op == op
    if not (first and pieces(list, count)) then i = i + 1 end
  end
end

function step(axis)
  apply("dp", axis)
end

-- Co-shard: data parallelism, and products split into pieces that run in sequence on one rank
-- (nnScaler, table 5).
--
-- Pairs of products are split as tensor parallelism splits them, along the heads of an attention or
-- the columns of a hidden layer. But all pieces stay on one rank, without communication. Fewer
-- activations between the two products exist at a time; all of them are still saved for backward
-- unless they are recomputed.

local count = 2 -- of pieces

-- Products of weights with `x` that are not pieces yet, each with the letter of its columns.
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
    -- Each group of products with the same operand is tried once. A split changes the list: another
    -- op is then the i-th.
    local first = #list > 0 and list[1].op == op
    if not (first and pieces(list, count)) then i = i + 1 end
  end
end

function step(axis)
  apply("dp", axis)
end

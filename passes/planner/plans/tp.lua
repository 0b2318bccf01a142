-- Tensor parallelism: pairs of products, the first cut by columns, the second by rows (Megatron-LM).
--
--     y = gelu(x A) B      A {S(1)}, B {S(0)}: every rank has its columns of x A, applies gelu to
--                          them, and multiplies them with its rows of B.  That gives shares of y.
--
-- A product with a weight is cut by columns where that leads, without communication, to products
-- that sum over what is cut, and to nothing else: through elementwise ops, and through attention,
-- whose heads are columns of q, k and v.  Other products are done whole by every rank.

local function has_weight(op)
  return op.inputs[2].source.role == "weight"
end

local products = { linear = true, conv = true }

function step(axis)
  local rows = {} -- products that a cut of others leads to
  for _, op in ipairs(ops(nil, "forward")) do
    if products[op.kind] and not rows[op] and has_weight(op) then
      -- Of a convolution, the columns are the channels that come out: the weight's first dimension.
      local letter = op.kind == "conv" and op:letter(2, 0) or op:result_letter(1, -1)
      if can(op, letter, axis) then
        local ends, stops = flow(op, letter, axis)
        local closes = #ends > 0 and #stops == 0
        for _, e in ipairs(ends) do
          closes = closes and products[e.op.kind] and has_weight(e.op)
        end
        if closes then
          op_trans(op, letter, axis)
          for _, e in ipairs(ends) do rows[e.op] = true end
        end
      end
    end
  end
end

-- The columns of q, k and v in one product are those of three.
function model()
  for _, op in ipairs(ops("linear")) do unpack(op) end
end

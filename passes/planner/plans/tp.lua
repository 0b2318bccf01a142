-- Tensor parallelism: pairs of products, the first sharded by columns, the second by rows
-- (Megatron-LM).
--
--     y = gelu(x A) B      A {S(1)}, B {S(0)}: every rank has its columns of x A, applies gelu to
--                          them, and multiplies them with its rows of B.  The result is a partial sum.
--
-- A product with a weight is sharded by columns if the split leads, without communication, only to
-- products that sum over the split dimension: through elementwise ops, and through attention, as
-- its heads are columns of q, k and v. All other products are replicated.

local function has_weight(op)
  return op.inputs[2].source.role == "weight"
end

local products = { linear = true, conv = true }

-- Warns of attentions that stay whole on each rank, as their heads are no multiple of the ranks.
local function report_heads(axis)
  local n, first, heads = 0, nil, nil
  local all = ops("attention", "forward")
  for _, op in ipairs(all) do
    local dim = op:attribute("seq_major") and 3 or 2
    for i = 1, 2 do -- of queries, and of keys: there may be fewer
      local own = op.inputs[i].shape[dim]
      if own % size(axis) ~= 0 then
        n, first, heads = n + 1, first or op, heads or own
        break
      end
    end
  end
  if first then
    replicated(first, ("%d of %d attentions are replicated over '%s': %d heads on %d ranks"):format(n, #all, axis, heads,
      size(axis)))
  end
end

function step(axis)
  if graph() == "train" then report_heads(axis) end
  local rows = {} -- products that sum over a split of earlier ones
  for _, op in ipairs(ops(nil, "forward")) do
    if products[op.kind] and not rows[op] and has_weight(op) then
      -- The columns of a convolution are its output channels: dimension 0 of the weight.
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

-- Unpacks fused products: the columns of q, k and v in one product are separate groups.
function model()
  for _, op in ipairs(ops("linear")) do unpack(op) end
end

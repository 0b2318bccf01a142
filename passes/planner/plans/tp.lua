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

-- Splits a packed weight or bias within its groups of columns, of which dimension `dim` is the number (unpack.h), if
-- some part has several groups. Parts of one group, as k and v of grouped queries, are then split by heads. The others, as
-- q, are exchanged between ranks once in a step, in the type that products read; or gathered, if they have fewer groups
-- than there are ranks. Equal parts need no request.
local function split_groups(v, ndim, dim, axis)
  if v.role ~= "weight" or v.ndim ~= ndim or not cuts(v, dim + 1, axis) then return end
  local parts = {}
  for _, r in ipairs(v.readers) do
    for _, s in ipairs(r.op.kind == "cast" and r.op.outputs[1].readers or { r }) do
      local forward = s.op.kind == "slice" and s.op.part == "forward"
      if forward and s.op.outputs[1].shape[dim + 1] > 1 then table.insert(parts, s.op) end
    end
  end
  for _, part in ipairs(parts) do
    local whole = true -- readers that want no whole groups
    for _, x in ipairs(part.outputs[1].readers) do
      -- The part as columns: an all_to_all from parts of each group to whole groups.
      local groups = x.op.kind == "reshape" and x.op.part == "forward" and x.op:letter(1, dim)
      if groups and can(x.op, groups, axis) then
        op_trans(x.op, groups, axis)
        whole = false
      end
    end
    if whole then op_trans(pin(part.outputs[1], "all"), "-", axis) end
  end
  if #parts > 0 then split(v, dim + 1, axis) end
end

-- The bias that an op adds to the result of a product.
local function bias_of(product)
  for _, r in ipairs(product.outputs[1].readers) do
    for _, x in ipairs(r.op.kind == "add" and r.op.inputs or {}) do
      if x.def and x.def.kind == "broadcast" then return x.def.inputs[1].source end
    end
  end
end

function step(axis)
  if graph() == "train" then report_heads(axis) end
  local rows = {} -- products that sum over a split of earlier ones
  local columns = {} -- products that are sharded by columns
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
          if op.kind == "linear" then table.insert(columns, op) end
          for _, e in ipairs(ends) do rows[e.op] = true end
        end
      end
    end
  end
  for _, op in ipairs(columns) do
    split_groups(op.inputs[2].source, 3, op:attribute("trans") and 0 or 1, axis)
    local bias = bias_of(op)
    if bias then split_groups(bias, 2, 0, axis) end
  end
end

-- Unpacks fused products: the columns of q, k and v in one product are separate groups.
function model()
  for _, op in ipairs(ops("linear")) do unpack(op) end
end

-- nnScaler's plan for Swin (section 8.3.2): recomputation of every layer, and co-shard with PIECES
-- pieces in the first four, whose activations are the largest. papers.py writes the number.

local count = PIECES

-- Products of trained weights with one operand: the queries, keys and values of an attention, or the
-- hidden columns of a feed-forward.
local function readers(x)
  local list = {}
  for _, r in ipairs(x.readers) do
    local letter = r.op.kind == "linear" and r.op.inputs[2].source.role == "weight" and r.op:result_letter(1, -1)
    if letter and not r.op.piece then list[#list + 1] = { op = r.op, letter = letter } end
  end
  return list
end

-- The norms between layers, each with the ops that rearrange its operand, as in patch merging: both
-- have the bytes of a layer's input, and cost little to compute again.
local function merges()
  local inside, list = {}, {}
  for _, l in ipairs(layers()) do
    for _, op in ipairs(l) do
      if op.kind == "layer_norm" then inside[op.inputs[2].source.name] = true end
    end
  end
  for _, op in ipairs(ops("layer_norm")) do
    local own, from = { op }, op.inputs[1].def
    while from and (from.kind == "reshape" or from.kind == "transpose") do
      table.insert(own, 1, from)
      from = from.inputs[1].def
    end
    if not inside[op.inputs[2].source.name] and #own > 1 then list[#list + 1] = own end
  end
  return list
end

function model()
  apply("tp")
  -- The weights of the first four layers: a cut replaces ops, weights stay.
  local cut, layer = {}, layers()
  for i = 1, math.min(4, #layer) do
    for _, op in ipairs(layer[i]) do
      if op.kind == "linear" then cut[op.inputs[2].source.name] = true end
    end
  end
  local i = 1
  while ops("linear")[i] do
    local op = ops("linear")[i]
    local list = cut[op.inputs[2].source.name] and readers(op.inputs[1]) or {}
    local tried = #list > 0 and list[1].op == op
    if not (tried and pieces(list, count)) then i = i + 1 end
  end
  for _, l in ipairs(layers()) do recompute(l, true) end
  for _, l in ipairs(merges()) do recompute(l) end
end

function step(axis)
  apply("dp", axis)
end

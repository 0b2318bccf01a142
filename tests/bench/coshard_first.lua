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
end

function step(axis)
  apply("dp", axis)
end

-- Transformations of one's own: every second product is a sum of two over halves of the summed dimension, every
-- attention is two, of half of the heads each, every softmax two, of half of the rows; GELU is of four pieces.

local function part(v, dim, from, to)
  local starts, steps, shape = {}, {}, {}
  for i, n in ipairs(v.shape) do
    starts[i], steps[i], shape[i] = i == dim and from or 0, 1, i == dim and to - from or n
  end
  return build("slice", { v }, { starts = starts, steps = steps, shape = shape })
end

-- The product x w or, if the weight is transposed, x w^T.
local function sum_of_halves(op)
  local transposed = op:attribute("trans")
  replace(op, function(x, w)
    local k, sum = x.shape[x.ndim], nil
    for half = 0, 1 do
      local from, to = half * k // 2, (half + 1) * k // 2
      local y = build("linear", { part(x, x.ndim, from, to), part(w, transposed and 2 or 1, from, to) }, { trans = transposed })
      sum = sum and build("add", { sum, y }) or y
    end
    return sum
  end)
end

-- An op in pieces of its operand's dimension, which is also that of the result.
local function pieces_of(op, dim, n)
  local attributes = {}
  for _, name in ipairs{ "axis", "scale", "causal", "seq_major" } do attributes[name] = op:attribute(name) end
  replace(op, function(...)
    local all = {}
    local size = op.inputs[1].shape[dim]
    for i = 0, n - 1 do
      local operands = {}
      for k, v in ipairs{ ... } do operands[k] = part(v, dim, i * size // n, (i + 1) * size // n) end
      all[#all + 1] = build(op.kind, operands, attributes)
    end
    return build("concat", all, { axis = dim - 1 })
  end)
end

function model()
  for i, op in ipairs(ops("linear")) do
    if i % 2 == 0 and op.inputs[1].shape[op.inputs[1].ndim] % 2 == 0 then sum_of_halves(op) end
  end
  for _, op in ipairs(ops()) do
    if op.kind == "gelu" then
      pieces_of(op, op.inputs[1].ndim, 4)
    elseif op.kind == "softmax" and op:attribute("axis") ~= 0 then
      pieces_of(op, 1, 2)
    elseif op.kind == "attention" and #op.inputs == 3 then
      pieces_of(op, op:attribute("seq_major") and 3 or 2, 2)
    end
  end
  for _, layer in ipairs(layers()) do recompute(layer) end
end

function step(axis)
  apply("dp", axis)
end

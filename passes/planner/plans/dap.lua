-- Dynamic axial parallelism (FastFold): for models with attention along one axis of a table after
-- the other.
--
-- During attention along rows, ranks have shards of the columns, and vice versa; an all_to_all
-- between the two switches the layout. Weights are replicated. A table is a value with dimensions
-- (batch, rows, columns, features) as the input of a norm.

local norms = { layer_norm = true, rms_norm = true }

-- The norm from which `value` was computed, and the dimension of the norm that became dimension
-- `dim`.
local function origin(value, dim)
  local op = value.def
  if not op or op.part ~= "forward" then return end
  if norms[op.kind] then return op, dim end
  local letter = op:result_letter(value.index, dim)
  for k, v in ipairs(op.inputs) do
    for d = 0, v.ndim - 1 do
      if letter and op:letter(k, d) == letter then
        local norm, at = origin(v, d)
        if norm then return norm, at end
      end
    end
  end
end

-- The norm of a table and its dimension along which `op` attends, if any.
local function attended(op)
  if op.kind == "softmax" then return origin(op.outputs[1], op:attribute("axis")) end
  if op.kind == "attention" then
    return origin(op.inputs[2], op:attribute("seq_major") and 1 or 2)
  end
end

function step(axis)
  local first
  for _, op in ipairs(ops(nil, "forward")) do
    local norm, along = attended(op)
    if norm and norm.outputs[1].ndim == 4 and (along == 1 or along == 2) then
      local other = 3 - along
      first = first or other
      local letter = norm:result_letter(1, other)
      if can(norm, letter, axis) then op_trans(norm, letter, axis) end
    end
  end
  for _, x in ipairs(params("input")) do
    if first and x.ndim > first and cuts(x, first, axis) then split(x, first, axis) end
  end
end

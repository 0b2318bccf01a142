-- Dynamic axial parallelism (FastFold): for models that attend along one axis of a table after the
-- other.
--
-- While rows are attended to, ranks have columns of the table each, and the other way round; between
-- the two an all_to_all turns it. Weights are everywhere. Here a table is what has dimensions
-- (batch, rows, columns, features) when it is normalised.

local norms = { layer_norm = true, rms_norm = true }

-- The norm that `value` was made from, and which of its dimensions dimension `dim` was.
local function origin(value, dim)
  local op = value.def
  if not op or op.part ~= "forward" then return end
  if norms[op.kind] then return op, dim end
  local letter = op:result_letter(value.index, dim)
  for k, v in ipairs(op.inputs) do
    for d = 0, v.rank - 1 do
      if letter and op:letter(k, d) == letter then
        local norm, at = origin(v, d)
        if norm then return norm, at end
      end
    end
  end
end

-- The norm of a table and its dimension along which `op` attends, if it does.
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
    if norm and norm.outputs[1].rank == 4 and (along == 1 or along == 2) then
      local other = 3 - along
      first = first or other
      local letter = norm:result_letter(1, other)
      if can(norm, letter, axis) then op_trans(norm, letter, axis) end
    end
  end
  for _, x in ipairs(params("input")) do
    if first and x.rank > first and cuts(x, first, axis) then split(x, first, axis) end
  end
end

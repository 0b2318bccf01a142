-- The cheapest of three plans for each layer, given those of the layers before: rows of the batch, columns and rows of
-- products, or both halves of a layer by rows of the batch and by columns.

function step(axis)
  local function rows(layer)
    for _, o in ipairs(ops{ block = layer, kind = "linear" }) do
      local letter = o:letter(1, 0)
      if can(o, letter, axis) then op_trans(o, letter, axis) end
    end
  end
  local function columns(layer)
    local list = ops{ block = layer, kind = "linear" }
    for i, o in ipairs(list) do
      local letter = i % 2 == 1 and o:result_letter(1, -1) or o:letter(1, -1)
      if can(o, letter, axis) then op_trans(o, letter, axis) end
    end
  end
  local function halves(layer)
    local list = ops{ block = layer, kind = "linear" }
    for i, o in ipairs(list) do
      local letter = i <= #list // 2 and o:letter(1, 0) or o:result_letter(1, -1)
      if can(o, letter, axis) then op_trans(o, letter, axis) end
    end
  end
  for _, layer in ipairs(layers()) do
    local best, least
    for _, plan in ipairs{ rows, columns, halves } do
      local p = price(function() plan(layer) end)
      if p and (not least or p.seconds < least) then best, least = plan, p.seconds end
    end
    if best then best(layer) end
  end
end

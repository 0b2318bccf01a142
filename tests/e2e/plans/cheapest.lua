-- The cheapest of three plans for each layer, given those of the layers before: rows of the batch, columns and rows of
-- products, or both halves of a layer by rows of the batch and by columns.

-- The letter that each of them splits of product i of n.
local plans = {
  function(o) return o:letter(1, 0) end,
  function(o, i) return i % 2 == 1 and o:result_letter(1, -1) or o:letter(1, -1) end,
  function(o, i, n) return i <= n // 2 and o:letter(1, 0) or o:result_letter(1, -1) end,
}

function step(axis)
  local function split(layer, letter_of)
    local list = ops{ block = layer, kind = "linear" }
    for i, o in ipairs(list) do
      local letter = letter_of(o, i, #list)
      if can(o, letter, axis) then op_trans(o, letter, axis) end
    end
  end
  for _, layer in ipairs(layers()) do
    local best, least
    for _, plan in ipairs(plans) do
      local p = price(function() split(layer, plan) end)
      if p and (not least or p.seconds < least) then best, least = plan, p.seconds end
    end
    if best then split(layer, best) end
  end
end

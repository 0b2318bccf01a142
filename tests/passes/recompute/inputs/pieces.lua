-- The two pairs of products of pieces.nn in four chunks each, all of them recomputed.

local function cut(op)
  assert(pieces({ { op = op, letter = op:result_letter(1, -1) } }, 4))
end

function model()
  cut(ops("linear")[1])
  cut(ops("linear")[9])
  local all = {}
  for _, kind in ipairs { "linear", "gelu", "add" } do
    for _, op in ipairs(ops(kind)) do all[#all + 1] = op end
  end
  recompute(all, true)
end

function step() end

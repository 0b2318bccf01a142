-- Data parallelism, in another order: of every product the gradient of the weight before that of what was multiplied
-- with it and before the bias's; and nothing of the second half of the model before all of the first half is done.

local function halves(list)
  local first, second = {}, {}
  for i, o in ipairs(list) do
    local half = i <= #list // 2 and first or second
    half[#half + 1] = o
  end
  return first, second
end

function step(axis)
  apply("dp", axis)
  for _, w in ipairs(ops{kind="linear_back_w"}) do
    for _, o in ipairs(ops{kind="linear", part="backward"}) do
      if o.name == w.name then op_order(w, o) end
    end
    for _, o in ipairs(ops{kind="reduce_sum", part="backward"}) do
      if o.name == w.name then op_order(w, o) end
    end
  end
  op_order(halves(ops(nil, "forward")))
end

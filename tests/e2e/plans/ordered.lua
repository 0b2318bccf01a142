-- Data parallelism, in another order: of every product the gradient of the weight before those of the other operand
-- and of the bias; and no op of the second half of the model before the end of the first half.

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
    for _, r in ipairs(w.inputs[2].readers) do
      if r.op.part == "backward" and (r.op.kind == "linear" or r.op.kind == "reduce_sum") then op_order(w, r.op) end
    end
  end
  op_order(halves(ops(nil, "forward")))
end

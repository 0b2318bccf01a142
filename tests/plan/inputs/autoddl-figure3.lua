-- The attention layer of AutoDDL's figure 3: q, k, v on a grid of (4, 8, 2), the output on (4, 4, 4).
--
--     axis of    4    4    2    2
--     x          S0   S0   S2   S2     gathered over the second and the fourth
--     q, k, v    0    n    k    n      4 of rows, 8 of columns, 2 of the summed dimension; scattered by rows
--     attention  b    h    b    h      gathered over the third and the fourth
--     o          0    k    n    n      4 of rows, 4 of columns, 4 of the summed dimension; scattered by rows
function factors() return { 4, 4, 2, 2 } end

local function say(op, letters, axes)
  for i, axis in ipairs(axes) do
    op_trans(op, letters[i], axis)
  end
end

function step(...)
  local axes = { ... }
  local products = ops("linear", "forward")
  for i = 1, 3 do say(products[i], { "0", "n", "k", "n" }, axes) end
  local att = ops("attention", "forward")[1]
  local heads = att:letter(1, 2)
  say(att, { "b", heads, "b", heads }, axes)
  say(products[4], { "0", "k", "n", "n" }, axes)
  say(ops("mul", "forward")[1], { "0", "0", "2", "2" }, axes)
  say(ops("add", "forward")[1], { "0", "0", "2", "2" }, axes)
end

-- The attention layer of AutoDDL's figure 3, on 16 of its 64 devices: q, k and v are split in 8 by
-- columns and in 2 by rows, the product after the attention in 4 and 4.
--
--     over axes          a     b     c     e
--     x                  S(0)  S(0)  S(2)  S(2)
--     q, k, v            S(2)  S(2)  P     S(2)     a, b and e gathered
--     attention          S(2)  S(2)  S(0)  S(2)     heads, and batch in place of sums
--     the product        P     P     S(2)  S(2)     c and e gathered
--     x + the product    S(0)  S(0)  S(2)  S(2)

function factors(n)
  return { 2, 2, 2, n // 8 }
end

function step(a, b, c, e)
  local x = params("input")[1]
  split(x, 0, a)
  split(x, 0, b)
  split(x, 2, c)
  split(x, 2, e)
  local products = ops("linear", "forward")
  for i = 1, 3 do
    local p = products[i]
    for _, axis in ipairs({ a, b, e }) do op_trans(p, p:result_letter(1, -1), axis) end
    op_trans(p, p:letter(1, -1), c)
    for _, r in ipairs(p.outputs[1].readers) do op_trans(r.op, r.op:letter(r.index, 0), c) end
  end
  local last = products[4]
  for _, axis in ipairs({ a, b }) do op_trans(last, last:letter(1, -1), axis) end
  for _, axis in ipairs({ c, e }) do op_trans(last, last:result_letter(1, -1), axis) end
end

-- SUMMA: every product over a grid of ranks, with both operands and the result sharded in both
-- directions (van de Geijn and Watts 1997; Optimus, Xu et al. 2021; a baseline of AutoDDL, section 5).
--
--     over axes    r        c
--     x            S(0)     S(1)     an all_gather over c
--     A            S(0)     S(1)     an all_gather over r
--     x A          S(0)     S(1)     rows of x, columns of A; nothing to reduce
--
-- Gradients of x and A are reduce_scatters along the same axes. No weight, gradient or state is
-- replicated; an operand is gathered at once, not panel by panel.

-- Every grid; the plan names one: summa.lua=4x16.
function factors(n)
  local list = {}
  for c = 1, n do
    if n % c == 0 then table.insert(list, { n // c, c }) end
  end
  return list
end

function model()
  apply("tp")
end

function step(r, c)
  for _, op in ipairs(ops(nil, "forward")) do
    local product = op.kind == "linear" or op.kind == "conv"
    if product and op.inputs[2].source.role == "weight" then
      local columns = op.kind == "conv" and op:letter(2, 0) or op:result_letter(1, -1)
      if can(op, columns, c) then op_trans(op, columns, c) end
    end
  end
  apply("zero3", r)
end

-- Expert parallelism: every rank has its experts of a mixture, and all else.
--
-- Experts are a dimension of a weight along which a batched product runs: one matrix for each. What
-- the mixture adds up over experts is a sum over ranks.

function step(axis)
  for _, op in ipairs(ops("matmul", "forward")) do
    for i, w in ipairs(op.inputs) do
      local weight = w.source
      local experts = weight.role == "weight" and weight.rank >= 3 and op:letter(i, 0)
      if experts and can(op, experts, axis) then op_trans(op, experts, axis) end
    end
  end
end

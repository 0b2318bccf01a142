-- Expert parallelism: every rank has its experts of a mixture, and all other weights.
--
-- Experts are the batch dimension of a batched product with a weight: one matrix per expert. The
-- mixture's sum over experts is a partial sum over ranks.

function step(axis)
  for _, op in ipairs(ops("matmul", "forward")) do
    for i, w in ipairs(op.inputs) do
      local weight = w.source
      local experts = weight.role == "weight" and weight.ndim >= 3 and op:letter(i, 0)
      if experts and can(op, experts, axis) then op_trans(op, experts, axis) end
    end
  end
end

-- ZeRO, stage 2: as stage 1, and each rank keeps its part of the gradients only.
--
-- Where a step has several micro-batches, their gradients are reduced one by one, so that what is
-- added up over them is a rank's part: the gradient is pinned to be cut before it is added up.

function step(axis)
  apply("zero1", axis)
  for _, op in ipairs(ops(nil, "update")) do
    local w, gradient = op.inputs[1], op.inputs[2]
    local letter = op:split(axis)
    if w and w.role == "weight" and letter and gradient and gradient.def then
      for dim = 0, gradient.rank - 1 do
        if op:letter(2, dim) == letter then
          local pinned = pin(gradient)
          op_trans(pinned, pinned:letter(1, dim), axis)
        end
      end
    end
  end
end

-- Stages as in pp. Weight gradients are deferred until a stage would be idle, in about the memory
-- of 1F1B (Qi et al. 2023).

function step(axis)
  schedule("zb-h1")
  apply("pp", axis)
end

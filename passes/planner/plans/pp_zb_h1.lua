-- Stages as pp has them, and gradients of weights wait until a stage has nothing else to do, in about the memory of
-- 1F1B (Qi et al. 2023).

function step(axis)
  apply("pp", axis)
  schedule("zb-h1")
end

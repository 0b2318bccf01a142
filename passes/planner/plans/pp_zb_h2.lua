-- The same in up to twice that memory, so that stages wait less (Qi et al. 2023).

function step(axis)
  apply("pp", axis)
  schedule("zb-h2")
end

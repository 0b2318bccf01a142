-- Stages as in pp; all micro-batches of a step run forward before the first runs backward (Huang et
-- al. 2019).

function step(axis)
  schedule("gpipe")
  apply("pp", axis)
end

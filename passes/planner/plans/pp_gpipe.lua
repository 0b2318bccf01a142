-- Stages as pp has them; of a step, all micro-batches go forward before the first goes back (Huang et al. 2019).

function step(axis)
  apply("pp", axis)
  schedule("gpipe")
end

-- Stages as in pp, without synchronous updates: each stage updates its weights after every
-- micro-batch, so gradients use weights that are some updates old (PipeDream, Narayanan et al.
-- 2019). Losses therefore differ from those of a single rank.

function step(axis)
  apply("pp", axis)
  schedule("pipedream")
end

-- Stages as pp has them, which do not wait for each other's updates: every micro-batch is a batch of its own, after which
-- each stage updates its weights, and gradients are of weights that are some updates old (PipeDream, Narayanan et al.
-- 2019).  So losses are not those of one rank.

function step(axis)
  apply("pp", axis)
  schedule("pipedream")
end

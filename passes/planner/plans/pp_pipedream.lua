-- Stages as in pp, without synchronous updates: each stage updates its weights after every
-- micro-batch, so gradients use weights that are some updates old (PipeDream, Narayanan et al.
-- 2019). Losses therefore differ from those of a single rank.

local layers_of = "" -- the numbers of pp

function numbers(list)
  for _, number in ipairs(list) do layers_of = layers_of .. ":" .. number.text end
end

function step(axis)
  apply("pp" .. layers_of, axis)
  schedule("pipedream")
end

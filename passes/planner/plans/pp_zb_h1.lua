-- Stages as in pp. Weight gradients are deferred until a stage would be idle, in about the memory
-- of 1F1B (Qi et al. 2023).

local layers_of = "" -- the numbers of pp

function numbers(list)
  for _, number in ipairs(list) do layers_of = layers_of .. ":" .. number.text end
end

function step(axis)
  schedule("zb-h1")
  apply("pp" .. layers_of, axis)
end

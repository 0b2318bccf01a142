-- Stages as in pp; all micro-batches of a step run forward before the first runs backward (Huang et
-- al. 2019).

local layers_of = "" -- the numbers of pp

function numbers(list)
  for _, number in ipairs(list) do layers_of = layers_of .. ":" .. number.text end
end

function step(axis)
  schedule("gpipe")
  apply("pp" .. layers_of, axis)
end

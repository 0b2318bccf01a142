-- Activation checkpointing of every second layer (torchtitan, selective_ac_option = "2").

function model()
  for i, list in ipairs(layers()) do
    if i % 2 == 0 then recompute(list) end
  end
end

function step(axis)
  apply("dp", axis)
end

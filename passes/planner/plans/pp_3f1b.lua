-- Stages of a model with recycling: three forward passes, and one backward pass for the last of
-- them. Passes of successive micro-batches alternate (nnScaler, table 7 and figure 2).

function step(axis)
  place(axis, { forwards = 3 })
  schedule("3f1b")
end

-- A model that recycles goes through the stages three times, and back once, for the gradients of the last time; passes
-- of micro-batches that follow each other take turns (nnScaler, table 7 and figure 2).

function step(axis)
  place(axis, { forwards = 3 })
  schedule("3f1b")
end

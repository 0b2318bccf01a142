-- A replicated weight; its states are split along the second dimension, not the first.
function step(axis)
  split(params("weight")[1], "-", axis)
  op_trans(ops("adam")[1], "1", axis)
  search(axis)
end

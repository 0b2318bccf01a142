-- A weight that is whole, and its states in parts of the second dimension, where the first would do.
function step(axis)
  split(params("weight")[1], "-", axis)
  op_trans(ops("adam")[1], "1", axis)
  search(axis)
end

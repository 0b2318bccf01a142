-- Stages of a pipeline: the model's ops on one rank of the axis after the other, so that the slowest has least
-- to compute, to send and to get, and each has the memory for it.

function step(axis)
  place(axis, size(axis))
end

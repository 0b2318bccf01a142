-- The option does not have this value.
function step(axis)
  assert(size(axis) > 1)
  search({ sums = 3 }, axis)
end

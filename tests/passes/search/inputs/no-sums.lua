-- As search.lua on one axis, but sums are added up at once.
function step(axis)
  search({ sums = false }, axis)
end

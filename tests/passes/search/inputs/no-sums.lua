-- Like search.lua on one axis, but partial sums are reduced at once.
function step(axis)
  search({ sums = false }, axis)
end

-- Returns the maximum number of factorings for one program.
function factors(n)
  local all = {}
  for i = 1, 64 do all[i] = { n } end
  return all
end
function step(axis) search(axis) end

function model()
  local first = ops("linear")[1]
  assert(not pieces({ { op = first, letter = "n" } }, 4)) -- of six columns
  assert(pieces({ { op = first, letter = "n" } }, 3))
  assert(not pieces({ { op = ops("linear")[7], letter = "n" } }, 2)) -- leads to an output
end

function step() end

-- The readers of x are split along its second dimension in chunks of 3, 1 and 2 parts.
function model()
  local list = {}
  for _, r in ipairs(params("input")[1].readers) do list[#list + 1] = { op = r.op, letter = r.op:letter(r.index, 1) } end
  local done, wall = pieces(list, { 3, 1, 2 })
  if not done then refuse(wall, "cannot be cut: a " .. wall.kind) end
end

function step() end

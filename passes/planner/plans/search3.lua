-- Everything is searched as in search.lua, over three axes of the ranks: rows, columns and sums of a product
-- can each be cut a way of their own, as in three-dimensional products (AutoDDL, section 4.2).
--
-- What can be chosen of an op on three axes is about the third power of what can be on one, so this takes its
-- time for large models.

local most = 64 -- ways to cut the ranks that are tried

-- Those first in which the largest size is smallest, which are nearest to cubes.
local function before(x, y)
  local p, q = math.max(table.unpack(x)), math.max(table.unpack(y))
  if p ~= q then return p < q end
  for i = 1, #x do
    if x[i] ~= y[i] then return x[i] < y[i] end
  end
  return false
end

-- Ranks that are no product of three sizes have fewer axes.
function factors(n)
  local all, count = products(n, 3), 3
  while #all == 0 do
    count = count - 1
    all = products(n, count)
  end
  table.sort(all, before)
  while #all > most do table.remove(all) end
  return all
end

function step(...)
  search(...)
end

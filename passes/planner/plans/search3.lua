-- Searches everything as search.lua does, over three axes of the ranks: rows, columns and the
-- summed dimension of a product may each be split over an axis of their own, as in
-- three-dimensional products (AutoDDL, section 4.2).
--
-- An op has about the third power of the alternatives that it has on one axis, so large models take
-- long.

local most = 64 -- factorings of the ranks that are tried

-- Orders factorings by their largest size: those nearest to a cube come first.
local function before(x, y)
  local p, q = math.max(table.unpack(x)), math.max(table.unpack(y))
  if p ~= q then return p < q end
  for i = 1, #x do
    if x[i] ~= y[i] then return x[i] < y[i] end
  end
  return false
end

-- Fewer axes if the ranks are no product of three sizes.
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

-- Everything is searched: how ops split and how weights and states lie, over one axis or two of the
-- ranks, whichever is best.

-- All ways to write n as a product of two sizes, in order; n alone is one axis.
function factors(n)
  local all = { { n } }
  for a = 2, n // 2 do
    if n % a == 0 then all[#all + 1] = { a, n // a } end
  end
  return all
end

function step(...)
  search(...)
end

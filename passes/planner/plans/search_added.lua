-- Searches everything as search.lua does, but partial sums are reduced before any reader, as in
-- GSPMD and Alpa. The plans are a subset of those of search.lua; if its cost estimates are slightly
-- off, these may be better.

-- All ordered factorings of n into two sizes, and n alone, which is one axis.
function factors(n)
  local all = { { n } }
  for a = 2, n // 2 do
    if n % a == 0 then all[#all + 1] = { a, n // a } end
  end
  return all
end

function step(...)
  search({ sums = false }, ...)
end

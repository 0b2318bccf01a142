-- Everything is searched as in search.lua, but sums over ranks are added up before anything reads them, as in GSPMD and
-- Alpa.  These are some of the plans that search.lua looks at; where its prices are off by a little, they may be better.

-- All ways to write n as a product of two sizes, in order; n alone is one axis.
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

-- The search space of GSPMD and Alpa: all splits on one axis or two, but partial sums are reduced
-- at once, not passed on or kept.

function factors(n) return products(n, 1, 2) end

function step(...)
  search({ sums = false }, ...)
end

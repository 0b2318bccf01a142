-- Everything is searched: how ops split and how weights and states lie, over one axis or two of the
-- ranks, whichever is best.

function factors(n) return products(n, 1, 2) end

function step(...)
  search(...)
end

-- Searches everything: the splits of ops, and the layouts of weights and states, over one or two
-- axes of the ranks, the faster of the two.

function factors(n) return products(n, 1, 2) end

function step(...)
  search(...)
end

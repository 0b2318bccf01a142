-- Everything is searched, of a model in which q, k and v are products of their own: heads can be cut
-- then, which is worth it in large models, and in small ones not the three products.

function factors(n) return products(n, 1, 2) end

function step(...)
  search(...)
end

-- The columns of q, k and v in one product are those of three.
function model()
  for _, op in ipairs(ops("linear")) do unpack(op) end
end

-- Searches everything for a model with q, k and v as separate products: then heads can be sharded.
-- That outweighs the cost of three products in large models, but not in small ones.

function factors(n) return products(n, 1, 2) end

function step(...)
  search(...)
end

-- Unpacks fused products: the columns of q, k and v in one product are separate groups.
function model()
  for _, op in ipairs(ops("linear")) do unpack(op) end
end

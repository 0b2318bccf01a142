-- Everything is searched, of a model in which q, k and v are products of their own: heads can be cut
-- then, which is worth it in large models, and in small ones not the three products.

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

-- The columns of q, k and v in one product are those of three.
function model()
  for _, op in ipairs(ops("linear")) do unpack(op) end
end

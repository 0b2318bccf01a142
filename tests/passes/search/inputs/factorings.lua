-- Factorings of the ranks; some have another product.
function factors(n)
  return { { n }, { 2, n } }
end

function step(...)
  search(...)
end

-- Ways to cut ranks of which some multiply to another number.
function factors(n)
  return { { n }, { 2, n } }
end

function step(...)
  search(...)
end

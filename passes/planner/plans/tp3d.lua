-- Three-dimensional tensor parallelism: rows of the batch over the first axis, tp2d over the other
-- two (AutoDDL, section 4.2).

-- Three sizes, as equal as possible.
function factors(n)
  local a = math.floor(n ^ (1 / 3) + 0.5)
  while n % a ~= 0 do a = a - 1 end
  local m = n // a
  local c = math.floor(math.sqrt(m) + 0.5)
  while m % c ~= 0 do c = c - 1 end
  return { a, m // c, c }
end

function model()
  apply("tp2d")
end

function step(rows, r, c)
  apply("dp", rows)
  apply("tp2d", r, c)
end

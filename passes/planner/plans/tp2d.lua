-- Two-dimensional tensor parallelism: pairs of products, each sharded by rows and by columns
-- (AutoDDL, section 4.2).
--
--     over axes    r        c
--     x            S(0)     S(2)     a gather over r, for the columns of A
--     x A          S(2)     P        a reduce_scatter over c, along the batch
--     h            S(2)     S(0)     elementwise ops; then a gather over c
--     h B          P        S(2)     a reduce_scatter over r, along the batch: as x
--
-- A rank sends about 1 / sqrt(n) of the bytes that it sends if products are sharded along one
-- dimension only.

-- Two sizes, as equal as possible.
function factors(n)
  local c = math.floor(math.sqrt(n) + 0.5)
  while n % c ~= 0 do c = c - 1 end
  return { n // c, c }
end

-- Shards the readers of a partial sum along the batch.
local function scatter(op, axis)
  for _, r in ipairs(op.outputs[1].readers) do
    local rows = r.op:letter(r.index, 0)
    if r.op.part == "forward" and can(r.op, rows, axis) then op_trans(r.op, rows, axis) end
  end
end

function model()
  apply("tp")
end

local function columns(op)
  return op:result_letter(1, -1)
end

function step(r, c)
  apply("tp", r)
  for _, op in ipairs(ops("linear", "forward")) do
    if op:split(r) == columns(op) then -- A
      for _, last in ipairs(flow(op, columns(op), r)) do -- B
        if not last.op:split(r) and can(last.op, columns(last.op), c) then
          op_trans(last.op, last.letter, r)
          op_trans(last.op, columns(last.op), c)
          scatter(last.op, r)
        end
      end
      local rows = op:letter(1, -1)
      if can(op, rows, c) then
        op_trans(op, rows, c)
        scatter(op, c)
      end
    end
  end
end

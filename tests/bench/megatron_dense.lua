-- Megatron-like parallelism of VGG's dense layers on a grid of ranks (AutoDDL, section 5.1.1): rows of
-- the batch over r; over c the first dense layer is sharded by columns, the next by rows, the last by
-- columns. Convolutions are data parallel over both.
--
-- The plan names a grid: megatron_dense.lua=8x4.

function factors(n)
  local list = {}
  for c = 2, n do
    if n % c == 0 then list[#list + 1] = { n // c, c } end
  end
  return list
end

function step(r, c)
  for i, op in ipairs(ops("linear", "forward")) do
    local along = i % 2 == 1 and op:result_letter(1, -1) or op:letter(2, 0)
    if can(op, along, c) then op_trans(op, along, c) end
  end
  apply("dp", r)
  apply("dp", c)
end

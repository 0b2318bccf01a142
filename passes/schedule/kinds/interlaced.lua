-- Interlaced (nnScaler, table 6; SuperScaler §3.4.2): a table too large for one device is sharded
-- over all of them, and used at both ends of the model; the stages are a pipeline in between. The
-- uses of the table, E, run on all devices at once: in each turn all devices have equal work before
-- it, so none waits.
--
--     turn k   E(1, k)  F(i, k-i)  E(2, k-3) E(3, k-3)  B(i, k-6+i)  E(4, k-6)       of 4 stages

embedding = true

function order()
  local far = stages - 1
  for i = 0, stages - 1 do
    local turns = {}
    for k = 0, micro_batches - 1 + 2 * far do
      turns[#turns + 1] = E(1, k)
      turns[#turns + 1] = F(i, k - i)
      turns[#turns + 1] = E(2, k - far)
      turns[#turns + 1] = E(3, k - far)
      turns[#turns + 1] = B(i, k - 2 * far + i)
      turns[#turns + 1] = E(4, k - 2 * far)
    end
    op_order(turns)
  end
end

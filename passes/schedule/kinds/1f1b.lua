-- 1F1B: forward and backward alternate. A stage starts with enough forwards for its first backward
-- to arrive after the last of them (PipeDream-Flush; nnScaler, table 4).
--
--     stage 0   F0 F1 F2 F3 B0 F4 B1 F5 …
--     stage 3            F0 B0 F1 B1 F2 B2 …

function order()
  for i = 0, stages - 1 do
    local ofst = stages - 1 - i -- |D| - i in the table, which numbers stages from 1
    for m = 0, micro_batches - 1 do
      op_order(F(i, m), F(i, m + 1))
      op_order(B(i, m), B(i, m + 1))
      op_order(F(i, m + ofst), B(i, m))
      op_order(B(i, m), F(i, m + ofst + 1))
    end
  end
end

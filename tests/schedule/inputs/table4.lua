-- nnScaler, table 4, stages from 1 as there; no further constraints.
function order()
  for i = 0, stages - 1 do
    local ofst = devices - (i + 1)
    for m = 0, micro_batches - 1 do
      for n = m + 1, micro_batches - 1 do
        op_order(F(i, m), F(i, n))
        op_order(B(i, m), B(i, n))
      end
      op_order(F(i, m + ofst), B(i, m))
      op_order(B(i, m), F(i, m + ofst + 1))
    end
  end
end

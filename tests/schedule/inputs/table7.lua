-- nnScaler, table 7, stages from 1 as there; no further constraints.
forwards = 3

function order()
  for i = 0, stages - 1 do
    local ofst = stages - (i + 1)
    for m = 0, micro_batches - 1 do
      op_order(F(i, m + 2, 1), F(i, m + 1, 2))
      op_order(F(i, m + 1, 2), F(i, m, 3))
      op_order(F(i, m, 3), B(i, m - ofst))
    end
  end
end

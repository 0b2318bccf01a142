-- 3F1B (nnScaler, table 7 and figure 2): a model with recycling, such as AlphaFold, runs forward
-- three times, each on the result of the previous one, and backward once. Passes of successive
-- micro-batches alternate.
--
--     stage 0   … F1 of m+2, F2 of m+1, F3 of m, B of m-3 …       of 4 stages

forwards = 3
room = stages

function order()
  for i = 0, stages - 1 do
    local ofst = stages - 1 - i
    for m = -2, micro_batches - 1 + ofst do -- missing micro-batches have no orders
      for p = 1, 3 do op_order(F(i, m, p), F(i, m + 1, p)) end
      op_order(B(i, m), B(i, m + 1))
      op_order(F(i, m + 2, 1), F(i, m + 1, 2))
      op_order(F(i, m + 1, 2), F(i, m, 3))
      op_order(F(i, m, 3), B(i, m - ofst))
    end
  end
end

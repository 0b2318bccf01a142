-- GPipe: all forwards, then all backwards (Huang et al. 2019).
--
--     stage 0   F0 F1 F2 F3                   B0    B1    B2    B3
--     stage 3            F0 F1 F2 F3 B0 B1 B2 B3

function order()
  for i = 0, stages - 1 do
    for m = 0, micro_batches - 1 do
      op_order(F(i, m), F(i, m + 1))
      op_order(B(i, m), B(i, m + 1))
    end
    op_order(F(i, micro_batches - 1), B(i, 0))
  end
end

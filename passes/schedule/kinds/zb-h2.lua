-- Zero bubble, second handcrafted schedule (Qi et al. 2023): as zb-h1, with enough forwards at the
-- start that no stage waits once it has started. It takes nearly twice the memory.

split = true

function order()
  for i = 0, stages - 1 do
    local ofst = 2 * (stages - 1 - i)
    for m = 0, micro_batches - 1 do
      op_order(F(i, m), F(i, m + 1))
      op_order(B(i, m), B(i, m + 1))
      op_order(W(i, m), W(i, m + 1))
      op_order(F(i, m + ofst), B(i, m))
      op_order(B(i, m), F(i, m + ofst + 1))
      op_order(W(i, m), F(i, m + 2 * stages - 1))
    end
  end
end

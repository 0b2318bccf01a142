-- Zero bubble, first handcrafted schedule (Qi et al. 2023): 1F1B with separate weight gradients.
-- Other stages wait for the gradient of the input only; weight gradients fill the bubbles, and no
-- stage holds more than the first stage of 1F1B.

split = true

function order()
  for i = 0, stages - 1 do
    local ofst = stages - 1 - i
    for m = 0, micro_batches - 1 do
      op_order(F(i, m), F(i, m + 1))
      op_order(B(i, m), B(i, m + 1))
      op_order(W(i, m), W(i, m + 1))
      op_order(F(i, m + ofst), B(i, m))
      op_order(B(i, m), F(i, m + ofst + 1))
      op_order(W(i, m), F(i, m + stages))
    end
  end
end

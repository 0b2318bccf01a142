-- DualPipe (DeepSeek-V3): both directions as in Chimera, and separate weight gradients as in zero
-- bubble.

split = true
room = devices

function device(i, m)
  return m % 2 == 0 and i or stages - 1 - i
end

function order()
  for i = 0, stages - 1 do
    for m = 0, micro_batches - 1 do
      op_order(F(i, m), F(i, m + 2))
      op_order(B(i, m), B(i, m + 2))
      op_order(W(i, m), W(i, m + 2))
    end
  end
end

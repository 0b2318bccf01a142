-- Zero bubble in the memory of 1F1B (Qi et al. 2024): each device has two chunks, and the model
-- goes through the devices and back, so that the first device also has the last stage, and its
-- gradients at once.
--
--     device 0   stages 0 and 7
--     device 3   stages 3 and 4

split = true
stages = 2 * devices
room = devices

function device(i, m)
  return i < devices and i or stages - 1 - i
end

function order()
  for i = 0, stages - 1 do
    for m = 0, micro_batches - 1 do
      op_order(F(i, m), F(i, m + 1))
      op_order(B(i, m), B(i, m + 1))
      op_order(W(i, m), W(i, m + 1))
    end
  end
end

-- Chimera (Li and Hoefler 2021): two copies of the model. Half of the micro-batches go through the
-- devices in one direction, half in the other, so that a device that waits for one half can run the
-- other.
--
--     device 0   F0    F2 …    F1    F3           even ones go down, odd ones up
--     device 3   F1    F3 …    F0    F2

room = devices

function device(i, m)
  return m % 2 == 0 and i or stages - 1 - i
end

function order()
  for i = 0, stages - 1 do
    for m = 0, micro_batches - 1 do
      op_order(F(i, m), F(i, m + 2))
      op_order(B(i, m), B(i, m + 2))
    end
  end
end

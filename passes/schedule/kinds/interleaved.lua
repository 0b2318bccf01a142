-- Interleaved 1F1B: every device has `chunks` chunks of the model, so that shorter blocks fill and
-- drain the pipeline (Narayanan et al. 2021, Megatron-LM).
--
--     device 0 of 4   chunk 0: F0 F1 F2 F3, chunk 1: F0 F1 F2 F3, chunk 0: F4 …
--
-- Micro-batches run in groups of `devices`, each through all chunks. An incomplete last group takes
-- the slots of a complete one.

stages = devices * chunks

function order()
  local groups = (micro_batches + devices - 1) // devices
  for d = 0, devices - 1 do
    -- The slots of this device; false for a missing micro-batch.
    local forward, backward = {}, {}
    for g = 0, groups - 1 do
      for c = 0, chunks - 1 do
        for m = g * devices, (g + 1) * devices - 1 do
          forward[#forward + 1] = F(c * devices + d, m) or false
          backward[#backward + 1] = B((chunks - 1 - c) * devices + d, m) or false
        end
      end
    end
    local n, warm = #forward, (devices - 1 - d) * 2 + (chunks - 1) * devices
    if chunks == 1 then warm = devices - 1 - d end
    local turns = {}
    for k = 1, n + warm do
      turns[#turns + 1] = forward[k] or nil
      turns[#turns + 1] = backward[k - warm] or nil
    end
    op_order(turns)
  end
end

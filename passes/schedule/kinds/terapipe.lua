-- TeraPipe (Li et al. 2021): a micro-batch goes through the stages in pieces of its tokens. With
-- causal attention a piece reads the keys and values of earlier pieces, so forwards run in this
-- order, and backwards in reverse. The last piece runs forward before the first backward; otherwise
-- forward and backward alternate, as in Seq1F1B (Sun et al. 2024), which keeps the fewest pieces in
-- memory.
--
--     stage 0   F0 F1 F2 B1 F3 B0 …          of two micro-batches in two pieces: 0 and 1, 2 and 3
--     stage 1      F0 F1 B1 F2 B0 F3 B3 …

pieces = chunks

-- The k-th backward.
local function back(i, k)
  return B(i, k - k % pieces + pieces - 1 - k % pieces)
end

function order()
  for i = 0, stages - 1 do
    local ofst = pieces - 1 + stages - 1 - i
    for k = 0, micro_batches * pieces - 1 do
      op_order(F(i, k), F(i, k + 1))
      op_order(back(i, k), back(i, k + 1))
      op_order(F(i, k + ofst), back(i, k))
      op_order(back(i, k), F(i, k + ofst + 1))
    end
  end
end

-- PipeDream: the order of 1F1B, with a weight update of each stage at the end of every backward. A
-- step has as many updates as micro-batches, and stages do not wait for each other between them
-- (Narayanan et al. 2019, section 3.2). The weights that a micro-batch reads are stashed until its
-- backward (3.3).
--
--     stage 0   F0 F1 F2 F3 B0 F4 B1 F5 …    F4 is the first to read updated weights: those after B0
--     stage 3            F0 B0 F1 B1 F2 B2 …

asynchronous = true

function order()
  for i = 0, stages - 1 do
    local ahead = stages - 1 - i -- the number of updates by which weights are stale
    for m = 0, micro_batches - 1 do
      op_order(B(i, m), B(i, m + 1))
      op_order(F(i, m), F(i, m + 1))
      op_order(F(i, m + ahead), B(i, m))
      op_order(B(i, m), F(i, m + ahead + 1))
    end
  end
end

-- The two directions of Chimera, with pieces in place of micro-batches.
pieces = 2
function device(i, k)
  return k % 2 == 0 and i or stages - 1 - i
end

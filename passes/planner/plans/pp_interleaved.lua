-- Two stages per rank, which halves the time until a rank has its first work (Narayanan et al.
-- 2021).

function step(axis)
  place(axis, { chunks = 2 })
  schedule("interleaved:2")
end

-- Three stages: two of a quarter of the ranks each, and one of the other half.  Two ranks are a stage each.

function step(axis)
  local n = size(axis)
  if n < 4 then
    place(axis, n)
  else
    place(axis, { n // 4, n // 4, n // 2 })
  end
end

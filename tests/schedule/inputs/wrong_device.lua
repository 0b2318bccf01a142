function device(i, m)
  return i + m
end

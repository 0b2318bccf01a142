function step()
  step = nil
end

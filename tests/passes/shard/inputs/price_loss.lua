-- Losses that an alternative splits stay whole, or in as many parts as before.
function step(axis)
  local loss = ops("cross_entropy", "forward")[1]
  local whole = price()
  local split = price(function() split_loss(loss, axis) end)
  local again = price(function() split_loss(loss, axis) split_loss(loss, axis, 1) end)
  assert(split.seconds == again.seconds and price().seconds == whole.seconds)
  split_loss(loss, axis)
  local parts = price()
  price(function() split_loss(loss, axis) end)
  assert(price().seconds == parts.seconds)
end

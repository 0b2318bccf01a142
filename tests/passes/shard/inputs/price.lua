-- Asks for prices, and then does what dp does.
function step(axis)
  local fc = ops("linear", "forward")[1]
  local columns = fc:result_letter(1, -1)
  local before = price()
  local kept

  -- A split of one op, and a whole program.
  local cut = price(function()
    op_trans(fc, columns, axis)
    assert(fc:split(axis) == columns and fc == ops("linear", "forward")[1] and fc.outputs[1].def == fc)
  end)
  local dp = price(function() apply("dp", axis) end)
  local zero = price(function()
    apply("zero1", axis)
    kept = ops{ part = "update" }[1]
  end)
  local found = price(function() search(axis) end)
  local placed = price(function() place(axis, 2) end) -- of the slowest stage
  assert(graph() ~= "train" or placed.seconds > before.seconds / 4 and placed.bytes > 0 and not placed.compute)
  for _, p in ipairs{ before, cut, dp, zero, found } do
    assert(p.seconds > 0 and p.compute > 0 and p.communication >= 0)
    assert(math.abs(p.seconds - p.compute - p.communication) <= 1e-9 * p.seconds)
    assert(graph() ~= "train" or p.bytes > 0)
  end
  if graph() == "train" then
    assert(before.communication == 0 and found.seconds <= dp.seconds * (1 + 1e-4) and found.seconds < before.seconds)
    assert(zero.bytes < dp.bytes and cut.seconds < before.seconds and cut.communication > 0)
    assert(kept.part == "update")
  end

  -- A price inside of a price, and the same question again.
  local inner
  local outer = price(function()
    op_trans(fc, columns, axis)
    inner = price(function()
      op_trans(ops("linear", "forward")[2], "-", axis)
      assert(fc:split(axis) == columns)
    end)
  end)
  assert(inner.seconds > 0 and outer.seconds == cut.seconds and price().seconds == before.seconds)

  -- Alternatives that are impossible.
  local none, why = price(function() op_trans(fc, "z", axis) end)
  assert(none == nil and why:sub(1, 24) == "linear has no letter 'z'", why)
  none, why = price(function() refuse(fc, "not so") end)
  assert(none == nil and why == "not so", why)
  none, why = price(function()
    op_trans(fc, columns, axis)
    op_trans(fc, "-", axis)
  end)
  assert(none == nil and why:sub(1, 13) == "linear splits", why)

  -- Nothing of this holds.
  assert(fc:split(axis) == nil and can(fc, fc:letter(1, 0), axis))
  apply("dp", axis)
  assert(price().seconds == dp.seconds)
end

-- Reports the orders in which pairs, next and sort visit elements.
function step(axis)
  local t, said = { [2.5] = 1, [-1] = 1, [true] = 1, [false] = 1, b = 1, a = 1, c = 1, aa = 1 }, {}
  for _, o in ipairs(ops(nil, "forward")) do t[o] = 1 end
  for k in pairs(t) do said[#said + 1] = type(k) == "userdata" and k.kind or tostring(k) end
  local k, n = next(t), 0
  while k ~= nil do k, n = next(t, k), n + 1 end
  local list = {}
  for i = 1, 300 do list[i] = { i % 3, i } end
  table.sort(list, function(x, y) return x[1] < y[1] end)
  for i = 2, 300 do
    assert(list[i - 1][1] < list[i][1] or (list[i - 1][1] == list[i][1] and list[i - 1][2] < list[i][2]))
  end
  error(table.concat(said, " ") .. "; " .. n .. string.format("; %s ", t) .. tostring(type) .. tostring({}))
end

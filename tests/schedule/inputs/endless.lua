function order()
  while true do end
end

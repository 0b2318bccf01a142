function order()
  op_order(F(0, 0), F(1, 0))
end

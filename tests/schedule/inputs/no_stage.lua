function order()
  op_order(F(4, 0), F(0, 0))
end

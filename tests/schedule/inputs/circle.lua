function order()
  op_order(F(0, 1), F(0, 0))
  op_order(B(0, 0), F(0, 1))
end

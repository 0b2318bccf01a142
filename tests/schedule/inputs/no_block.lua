function order()
  op_order(F(0, 0), 3)
end

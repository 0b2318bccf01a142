function order()
  op_order(W(0, 0), F(0, 1))
end

-- The backward pass of a micro-batch's first piece precedes that of its last.
pieces = 2
function order()
  op_order(B(0, 0), B(0, 1))
end

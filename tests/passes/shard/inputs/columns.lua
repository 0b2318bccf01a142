function step(axis)
  local first = ops("linear", "forward")[1]
  assert(first.name == "first" and first.einsum == "0 k, k n -> 0 n" and first.inputs[2].name == "a")
  assert(first.inputs[2].readers and size(axis) == 2 and glob("fi*", first.name))
  assert(first:result_letter(1, -1) == "n" and first:letter(1, -1) == "k" and first:split(axis) == nil)
  assert(not can(first, "z", axis) and can(first, "n", axis))
  local ends, stops = flow(first, "n", axis)
  assert(#ends == 1 and ends[1].op.name == "second" and ends[1].letter == "k" and #stops == 0)
  op_trans(first, "n", axis)
  assert(first:split(axis) == "n")
end

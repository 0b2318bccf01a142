-- Says that ranks can be cut in two ways, and not which is better.
function factors(n) return { { n }, { 2, n // 2 } } end
function step(axis) op_trans(ops("linear")[1], "n", axis) end

-- Allows two factorings of the ranks, without a choice between them.
function factors(n) return { { n }, { 2, n // 2 } } end
function step(axis) op_trans(ops("linear")[1], "n", axis) end

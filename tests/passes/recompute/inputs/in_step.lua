function step(axis) recompute(ops("linear")) end

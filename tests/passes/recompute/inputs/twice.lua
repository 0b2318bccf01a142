function model() recompute(ops("gelu")) recompute(ops()) end
function step(axis) end

function model() recompute(params("input")) end
function step(axis) end

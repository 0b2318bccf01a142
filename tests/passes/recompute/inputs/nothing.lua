function model() recompute {} end
function step(axis) end

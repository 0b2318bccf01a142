-- Two parts of the experts, with fewer slots than the worst routing needs.
function model()
  dispatch_experts(ops("grouped_linear")[1], { parts = 2, capacity = 1.5, imbalance = 1.2 })
end

function step(axis) end

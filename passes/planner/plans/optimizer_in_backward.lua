-- Optimizer in backward: data parallelism, and each weight is updated as soon as its gradient is whole and its old value is
-- read no more (LOMO: Lv et al. 2023; PyTorch's register_post_accumulate_grad_hook).
--
-- So gradients of all weights are never in memory at the same time. Losses and weights are the same numbers. `offload` does
-- it by itself where it can be done.
--
-- It needs no ranks: `--plan zero3=4,optimizer_in_backward=1` does this to that plan.

function model()
  optimizer_in_backward()
end

function step(axis)
  apply("dp", axis)
end

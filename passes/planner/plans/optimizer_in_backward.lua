-- Optimizer in backward: data parallelism, and each weight is updated as soon as its gradient is
-- complete and its old value is dead (LOMO: Lv et al. 2023; PyTorch's
-- register_post_accumulate_grad_hook).
--
-- So the gradients of all weights are never resident at the same time. Losses and weights are the
-- same numbers. `offload` implies it if possible.
--
-- An axis of size 1 suffices: `--plan zero3=4,optimizer_in_backward=1` applies this to zero3.

function model()
  optimizer_in_backward()
end

function step(axis)
  apply("dp", axis)
end

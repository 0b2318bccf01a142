-- Offload: data parallelism, and the optimizer's states are in host memory but while they are updated (Ren et al. 2021).
--
-- So are weights of which the step has copies in 16 bits, as it has on gpus: only their update reads them then. Others
-- stay on the device.
--
-- Updates do not wait for gradients of other weights where that makes room, as with `optimizer_in_backward`.
--
-- It needs no ranks: `--plan zero3=4,offload=1` does this to what zero3 keeps on each rank.

function model()
  for _, weight in ipairs(params("weight")) do
    if weight.trained then offload(weight) end
  end
end

function step(axis)
  apply("dp", axis)
end

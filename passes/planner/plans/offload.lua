-- Offload: data parallelism, and optimizer states are in host memory except during their update
-- (Ren et al. 2021).
--
-- So are weights of which the step has 16-bit copies, as on GPUs: then only the update reads them.
-- Other weights stay on the device.
--
-- Updates run before other gradients are complete if that saves memory, as with
-- `optimizer_in_backward`.
--
-- An axis of size 1 suffices: `--plan zero3=4,offload=1` offloads each rank's shard of zero3.

function model()
  for _, weight in ipairs(params("weight")) do
    if weight.trained then offload(weight) end
  end
end

function step(axis)
  apply("dp", axis)
end

-- Offload: data parallelism, and optimizer states are in host memory except during their update
-- (Ren et al. 2021).
--
--     --plan offload=8                    of all weights
--     --plan offload:10=8                 of those of the first 10 layers
--     --plan pp=2,offload:8@1-12:2@13-24=1
--                                         of 8 of layers 1 to 12, the first ones, and 2 of layers 13 to 24
--
-- So are weights of which the step has 16-bit copies, as on GPUs: then only the update reads them.
-- Other weights stay on the device. Weights that ops before the first layer read count for the first
-- layer, as the embedding's do; those of ops after a layer count for it.
--
-- Updates run before other gradients are complete if that saves memory, as with
-- `optimizer_in_backward`.
--
-- An axis of size 1 suffices: `--plan zero3=4,offload=1` offloads each rank's shard of zero3.

local asked -- { n = layers, first =, last = the layers that they are of }

function numbers(list)
  asked = list
end

function model()
  for _, weight in ipairs(asked and layer_weights(asked) or params("weight")) do
    if weight.trained then offload(weight) end
  end
end

function step(axis)
  apply("dp", axis)
end

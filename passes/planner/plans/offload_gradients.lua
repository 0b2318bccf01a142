-- Offloaded gradients: data parallelism, and the sums of weight gradients over micro-batches are in
-- host memory (per-stage ratios of it: Mist, Zhu et al. 2025).
--
--     --plan offload_gradients=8          of all weights
--     --plan offload_gradients:10=8       of those of the first 10 layers
--     --plan pp=2,offload_gradients:8@1-12:2@13-24=1
--                                         of 8 of layers 1 to 12, the first ones, and 2 of layers 13 to 24
--
-- Weights that ops before the first layer read count for the first layer, and those of ops after a
-- layer count for it, as in `offload`. A step of one micro-batch has no sums.
--
-- An axis of size 1 suffices: `--plan zero2=4,offload_gradients=1,offload=1` keeps each rank's shard of
-- gradients and states in host memory.

local asked -- { n = layers, first =, last = the layers that they are of }

function numbers(list)
  asked = list
end

function model()
  for _, weight in ipairs(asked and layer_weights(asked) or params("weight")) do
    if weight.trained then offload_gradient(weight) end
  end
end

function step(axis)
  apply("dp", axis)
end

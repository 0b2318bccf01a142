-- Swap: data parallelism, and saved activations are offloaded to host memory until backward (Rhu et
-- al. 2016).
--
--     --plan swap=8                       all layers
--     --plan swap:10=8                    the first 10
--     --plan pp=2,swap:1@1-2:1@3-4:1@5-6=1
--                                         1 of each 2 of layers 1 to 6, the first one
--
-- Each repeated subgraph, usually a layer, is a list of its own: it is copied out while the next
-- layer runs forward, and copied back while the next layer runs backward. Activations between
-- layers are offloaded like those inside. Without repeated subgraphs there are as many lists as ops
-- in each. Copies of a layer run beside the next one in the list, so layers that are spread
-- over the model have more time for them than neighbours.
--
-- An axis of size 1 suffices: `--plan zero3=4,swap=1` applies this to the program of zero3. With
-- `recompute=1,swap=1` only the activations that are not recomputed go to host memory.

local asked -- { n = layers, first =, last = the layers that they are of }

function numbers(list)
  asked = list
end

function model()
  for _, list in ipairs(layers(asked)) do swap(list) end
end

function step(axis)
  apply("dp", axis)
end

-- Swap: data parallelism, and saved activations are offloaded to host memory until backward (Rhu et
-- al. 2016).
--
-- Each repeated subgraph, usually a layer, is a list of its own: it is copied out while the next
-- layer runs forward, and copied back while the next layer runs backward. Activations between
-- layers are offloaded like those inside. Without repeated subgraphs there are as many lists as ops
-- in each.
--
-- An axis of size 1 suffices: `--plan zero3=4,swap=1` applies this to the program of zero3. With
-- `recompute=1,swap=1` only the activations that are not recomputed go to host memory.

function model()
  for _, list in ipairs(layers()) do swap(list) end
end

function step(axis)
  apply("dp", axis)
end

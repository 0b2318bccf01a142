-- Swap: data parallelism, and what backward reads of a layer is in host memory until then (Rhu et al. 2016).
--
-- What repeats in the model, a layer mostly, is a list of its own: it goes out while the next layer runs forward, and
-- comes back while that one runs backward. What is kept from layer to layer goes away as what is inside of them does.
-- Where nothing repeats, there are as many lists as ops in each.
--
-- It needs no ranks: `--plan zero3=4,swap=1` does this to what zero3 makes of the model. With `recompute=1,swap=1` only
-- what recompute keeps goes to host memory.

function model()
  for _, list in ipairs(layers()) do swap(list) end
end

function step(axis)
  apply("dp", axis)
end

-- Recompute: data parallelism, and backward computes the inside of layers anew (Chen et al. 2016).
--
-- What repeats in the model, a layer mostly, is a list of its own: of each only what it reads of others is
-- kept from forward to backward. Where nothing repeats, there are as many lists as ops in each: as many values
-- are kept then as are made anew at a time.
--
-- It needs no ranks: `--plan tp=4,recompute=1` does this to what tp makes of the model.

function model()
  for _, list in ipairs(layers()) do recompute(list) end
end

function step(axis)
  apply("dp", axis)
end

-- Activation checkpointing: data parallelism, and backward recomputes the inside of layers (Chen et
-- al. 2016).
--
--     --plan recompute=8                  all layers
--     --plan recompute:10=8               the first 10
--     --plan pp=2,recompute:8@1-12:2@13-24=1
--                                         8 of layers 1 to 12, the first ones, and 2 of layers 13 to 24
--
-- Each repeated subgraph, usually a layer, is a list of its own: only its inputs are saved from
-- forward to backward. Without repeated subgraphs there are as many lists as ops in each: then as
-- many values are saved as are recomputed at a time.
--
-- An axis of size 1 suffices: `--plan tp=4,recompute=1` applies this to the program of tp.

local asked -- { n = layers, first =, last = the layers that they are of }

function numbers(list)
  asked = list
end

function model()
  for _, layer in ipairs(layers(asked)) do recompute(layer) end
end

function step(axis)
  apply("dp", axis)
end

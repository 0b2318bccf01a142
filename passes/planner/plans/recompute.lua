-- Activation checkpointing: data parallelism, and backward recomputes the inside of layers (Chen et
-- al. 2016).
--
-- Each repeated subgraph, usually a layer, is a list of its own: only its inputs are saved from
-- forward to backward. Without repeated subgraphs there are as many lists as ops in each: then as
-- many values are saved as are recomputed at a time.
--
-- An axis of size 1 suffices: `--plan tp=4,recompute=1` applies this to the program of tp.

function model()
  for _, list in ipairs(layers()) do recompute(list) end
end

function step(axis)
  apply("dp", axis)
end

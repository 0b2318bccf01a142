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
-- many values are saved as are recomputed at a time. If the next layer is not recomputed, the result
-- that it reads is saved as its activation, and is not recomputed.
--
-- An axis of size 1 suffices: `--plan tp=4,recompute=1` applies this to the program of tp.

local asked -- { n = layers, first =, last = the layers that they are of }

function numbers(list)
  asked = list
end

-- By op: true in a layer that is asked for, false in another one.
local function recomputed_ops(wanted)
  local of = {}
  for _, layer in ipairs(layers()) do
    for _, op in ipairs(layer) do of[op] = false end
  end
  for _, layer in ipairs(wanted) do
    for _, op in ipairs(layer) do of[op] = true end
  end
  return of
end

-- Whether a layer that is not recomputed reads a result of the op.
local function is_saved(op, recomputed)
  for _, y in ipairs(op.outputs) do
    for _, r in ipairs(y.readers) do
      if recomputed[r.op] == false then return true end
    end
  end
  return false
end

function model()
  local wanted = layers(asked)
  local recomputed = asked and recomputed_ops(wanted) or {}
  for _, layer in ipairs(wanted) do
    local list = {}
    for _, op in ipairs(layer) do
      if not is_saved(op, recomputed) then list[#list + 1] = op end
    end
    recompute(list)
  end
end

function step(axis)
  apply("dp", axis)
end

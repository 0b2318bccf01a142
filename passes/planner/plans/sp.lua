-- Sequence parallelism: tensor parallelism, with the ops between its products sharded along the
-- sequence (Korthikanti et al. 2022).
--
-- Norms, dropouts and residual sums read all columns of a row, so tensor parallelism alone
-- replicates them. Sharded along the sequence, each rank has its rows; the all_reduce after a pair
-- of products becomes a reduce_scatter there and an all_gather before the next pair.

local norms = { layer_norm = true, rms_norm = true }
local along = { dropout = true, gather = true }

-- Splits the producers of `v` (b t d) along t, transitively, as far as their ops allow it.
local function cut_up(v, axis)
  local op = v.def
  if not op or not (op.elementwise or along[op.kind]) or op:split(axis) then return end
  local letter = op:result_letter(1, 1)
  if not can(op, letter, axis) then return end
  op_trans(op, letter, axis)
  for _, x in ipairs(op.inputs) do
    if x.ndim == 3 then cut_up(x, axis) end
  end
end

function model()
  apply("tp")
end

function step(axis)
  apply("tp", axis)
  for _, op in ipairs(ops(nil, "forward")) do
    if norms[op.kind] and op.outputs[1].ndim == 3 then
      local letter = op:result_letter(1, 1)
      if can(op, letter, axis) then
        op_trans(op, letter, axis)
        cut_up(op.inputs[1], axis)
      end
    end
  end
end

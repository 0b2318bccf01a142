-- Sequence parallelism: tensor parallelism, and what lies between its products cut along the
-- sequence (Korthikanti et al. 2022).
--
-- Norms, dropouts and residual sums read all columns of a row, so tensor parallelism alone has every
-- rank do all of them.  Cut along the sequence, each rank has its rows; the all_reduce behind a
-- pair of products becomes a reduce_scatter there and an all_gather before the next pair.

local norms = { layer_norm = true, rms_norm = true }
local along = { dropout = true, gather = true }

-- Cuts what leads up to `v` (b t d) along t, as far as there are ops that can be.
local function cut_up(v, axis)
  local op = v.def
  if not op or not (op.elementwise or along[op.kind]) or op:split(axis) then return end
  local letter = op:result_letter(1, 1)
  if not can(op, letter, axis) then return end
  op_trans(op, letter, axis)
  for _, x in ipairs(op.inputs) do
    if x.rank == 3 then cut_up(x, axis) end
  end
end

function model()
  apply("tp")
end

function step(axis)
  apply("tp", axis)
  for _, op in ipairs(ops(nil, "forward")) do
    if norms[op.kind] and op.outputs[1].rank == 3 then
      local letter = op:result_letter(1, 1)
      if can(op, letter, axis) then
        op_trans(op, letter, axis)
        cut_up(op.inputs[1], axis)
      end
    end
  end
end

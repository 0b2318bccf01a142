-- Expert parallelism: every rank has its experts of a mixture, and all other weights.
--
-- Experts that rows are routed to (grouped_linear) exchange rows. Every rank has its rows of the
-- batch, as with dp; an all_to_all brings those of a mixture to the ranks of their experts, another
-- one takes the results back (GShard, section 3.2).
--
-- Experts that all compute all rows are the batch dimension of a batched product with a weight: one
-- matrix per expert. The mixture's sum over experts is a partial sum over ranks.

local capacity = 0  -- of the mean number of rows; 0: rows that the worst routing needs
local imbalance = 1 -- rows of the busiest rank's experts, of the mean, for estimates

-- Of "ep:150": slots for 1.5 times the mean.
function numbers(list)
  capacity = list[1].n / 100
end

-- Notes how many slots the worst routing costs.
local function report(mixtures, slots, rows)
  if capacity ~= 0 or slots <= rows then return end
  worst_case(ops("grouped_linear")[1],
    ("slots for the worst routing: %d for the %d rows of %s, %g times the memory and transfers of an even routing"):format(
      slots, rows, mixtures == 1 and "a mixture" or ("each of %d mixtures"):format(mixtures), slots / rows))
end

-- Notes that a mixture is none that rows are routed to.
local function report_dense()
  local choice = ops("top_k")[1] or ops("arg_max")[1]
  if choice and #ops("expert_slots") == 0 then
    dense_routing(choice, "the choice of experts is no routing: all experts compute all rows")
  end
end

function model()
  if not ops("grouped_linear")[1] then report_dense() end
  local i, mixtures, most, of = 1, 0, 0, 0
  while ops("grouped_linear")[i] do
    local op = ops("grouped_linear")[i]
    local experts, parts = op.inputs[1].shape[1], size()
    -- Ranks that cannot share the experts equally share parts of one expert each, and refuse.
    if not parts or experts % parts ~= 0 then parts = experts end
    if op:attribute("parts") then
      i = i + 1
    else
      local rows = 1
      for _, n in ipairs(op.inputs[3].shape) do rows = rows * n end
      local slots = select(2, dispatch_experts(op, { parts = parts, capacity = capacity, imbalance = imbalance }))
      mixtures = mixtures + 1
      -- Other ranks are refused.
      if parts == size() and slots > most then most, of = slots, rows end
    end
  end
  report(mixtures, most, of)
end

-- Products of routed experts, and the ops between them, whose first dimension is the part.
local function routed()
  local list, inside = {}, {}
  for _, op in ipairs(ops(nil, "forward")) do
    local between, product = false, op.kind == "grouped_linear" and op:attribute("parts")
    for _, v in ipairs(op.kind ~= "collect" and op.inputs or {}) do
      between = between or v.def and inside[v.def]
    end
    if product or between then
      inside[op] = true
      list[#list + 1] = op
    end
  end
  return list
end

function step(axis)
  local list = routed()
  for _, op in ipairs(list) do
    local part = op:result_letter(1, 0)
    if can(op, part, axis) then
      op_trans(op, part, axis)
    elseif op.kind == "grouped_linear" then
      refuse(op, ("%d experts cannot be shared by %d ranks equally"):format(op.inputs[1].shape[1], size(axis)))
    end
  end
  -- Rows go to slots, and come back, where the rows are.
  for _, kind in ipairs(#list > 0 and { "expert_slots", "dispatch", "collect" } or {}) do
    for _, op in ipairs(ops(kind, "forward")) do
      local groups = op:letter(#op.inputs, 0)
      if can(op, groups, axis) then op_trans(op, groups, axis) end
    end
  end
  if #list > 0 then apply("dp", axis) end
  for _, op in ipairs(ops("matmul", "forward")) do
    for i, w in ipairs(op.inputs) do
      local weight = w.source
      local experts = weight.role == "weight" and weight.ndim >= 3 and op:letter(i, 0)
      if experts and can(op, experts, axis) then op_trans(op, experts, axis) end
    end
  end
end

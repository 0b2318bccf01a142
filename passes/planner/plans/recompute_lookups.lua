-- Data parallelism, and backward recomputes tables instead of saving them: values of weights alone
-- that are larger than they are, such as relative positions looked up for each pair of positions.
--
-- An axis of size 1 suffices: `--plan tp=4,recompute_lookups=1` applies this to the program of tp.

local function size(v)
  local n = 1
  for _, d in ipairs(v.shape) do n = n * d end
  return n
end

function model()
  local from = {} -- by value: the elements of the weights that it is made of
  local function weights(v)
    if from[v] == nil then
      local sum = v.role == "weight" and (v.trained and size(v) or 0)
      if v.def then
        sum = 0
        for _, x in ipairs(v.def.inputs) do
          local n = weights(x)
          sum = sum and n and sum + n
        end
      end
      from[v] = sum
    end
    return from[v]
  end
  local list = {}
  for _, op in ipairs(ops(nil, "forward")) do
    local y = op.outputs[1]
    local n = weights(y)
    if n and #op.inputs > 0 and size(y) > n then list[#list + 1] = op end
  end
  if #list > 0 then recompute(list) end
end

function step(axis)
  apply("dp", axis)
end

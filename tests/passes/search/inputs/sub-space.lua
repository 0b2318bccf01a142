-- Searches the first layer, then all products, then the rest; `step` is called for both graphs.
local function count(list, axis)
  local n = 0
  for _, op in ipairs(list) do n = n + (op:split(axis) and 1 or 0) end
  return n
end

function step(axis)
  local forward, backward = ops(nil, "forward"), ops(nil, "backward")
  local first = layers()[1]
  assert(count(forward, axis) == 0)
  search({ ops = first }, axis)
  local inside = count(first, axis)
  assert(inside == #first)
  -- Beside the list only ops of weights alone that it reads, such as casts; and its gradients.
  local beside = 0
  for _, op in ipairs(forward) do
    if op:split(axis) then
      local listed = #ops{ block = { op, first } } == #first
      if not listed then
        assert(op.kind == "cast" or op.kind == "broadcast" or op.kind == "transpose" or op.kind == "reshape", op.kind)
        beside = beside + 1
      end
    end
  end
  assert(count(forward, axis) == inside + beside)
  assert(graph() ~= "train" or count(backward, axis) > 0 and count(backward, axis) < #backward)
  -- The answer holds in the next sub-space and in the rest.
  local said = {}
  for _, op in ipairs(first) do said[op] = op:split(axis) end
  search({ ops = { ops("linear", "forward"), first } }, axis)
  assert(count(ops("linear", "forward"), axis) == #ops("linear", "forward"))
  assert(count(forward, axis) < #forward)
  search(axis)
  assert(count(forward, axis) == #forward)
  for _, op in ipairs(first) do assert(said[op] == op:split(axis)) end
end

-- Two stages; the split of each over half of the ranks is searched.

function factors(n)
  return { 2, n // 2 }
end

function step(stages, inner)
  search(inner)
  local list, work, done = ops(nil, "forward"), 0, 0
  for _, op in ipairs(list) do work = work + op.flops end
  for _, op in ipairs(list) do
    if op.flops > 0 then op_assign(op, 2 * done < work and 0 or 1, stages) end
    done = done + op.flops
  end
end

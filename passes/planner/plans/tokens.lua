-- Splits the tokens of the inputs along their second dimension. All values computed from them follow.
--
-- Features in that place are no tokens: the ops that read them sum over them.

-- Whether an op that reads the input has a result with its second dimension.
local function is_kept(x)
  for _, r in ipairs(x.readers) do
    local letter = r.op:letter(r.index, 1)
    for i, y in ipairs(letter and r.op.outputs or {}) do
      for dim = 0, y.ndim - 1 do
        if r.op:result_letter(i, dim) == letter then return true end
      end
    end
  end
  return false
end

function step(axis)
  local found, why
  for _, x in ipairs(params("input")) do
    if x.ndim > 1 and not x.whole and is_kept(x) then
      local can
      can, why = cuts(x, 1, axis)
      if can then split(x, 1, axis) end
      found = found or can
    end
  end
  if not found then
    refuse(params("input")[1], "no input has tokens in its second dimension that can be split into " .. size(axis)
      .. (why and ": " .. why or ""))
  end
end

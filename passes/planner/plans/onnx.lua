-- What the model itself says: the multi-device annotations of ONNX, and what follows from them.
--
-- A product whose result is cut apart, as q, k and v are, becomes several where these are cut by columns: then
-- every rank has its part of each.
--
-- The axes are those that the annotations form, and nnaot runs this program for each of them.

function step(axis)
  annotations(axis)
end

function model()
  for _, op in ipairs(ops("linear")) do
    if annotated_apart(op) then unpack(op) end
  end
end

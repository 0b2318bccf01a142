-- The model's multi-device annotations (ONNX), and their consequences.
--
-- If the result of a product is sliced into separate groups of columns, such as q, k and v, and
-- these are sharded along columns, the product becomes one product per group: then every rank has
-- its shard of each.
--
-- The annotations define the axes, and nnaot runs this program for each of them.

function step(axis)
  annotations(axis)
end

function model()
  for _, op in ipairs(ops("linear")) do
    if annotated_apart(op) then unpack(op) end
  end
end

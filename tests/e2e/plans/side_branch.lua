-- The interlaced pipeline of an encoder and a decoder (nnScaler, figure 6). The decoder is stage 1,
-- but for the values of its last cross attention, which depend on the encoder only. Gradients of the
-- encoder's result come from both stages.

function step(axis)
  apply("words", axis)
  for _, op in ipairs(ops("linear", "forward")) do
    local name = op.inputs[2].source.name
    local decodes = name:sub(1, 7) == "decoder" and name ~= "decoder.3.cross.v.weight"
    if not op:split(axis) then op_assign(op, decodes and 1 or 0, axis) end
  end
  schedule("interlaced")
end

-- The model's multi-device annotations, as in `onnx`, and a search over the choices that they leave
-- open.

function step(axis)
  apply("onnx", axis)
  search(axis)
end

function model()
  apply("onnx")
end

-- What the model itself says, as `onnx` has it; what it leaves open is searched.

function step(axis)
  apply("onnx", axis)
  search(axis)
end

function model()
  apply("onnx")
end

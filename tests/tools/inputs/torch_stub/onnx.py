"""Nothing of onnx is called before a module is exported."""

"""Cutting a model's graph into stages; needs the onnx package, except for `folder`."""

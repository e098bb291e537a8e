"""Cuts a model's graph into stages; needs the onnx package, except where functions use it."""

"""ONNX models as functions."""

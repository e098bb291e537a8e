"""ONNX models as graphs: read from the file, optimised and shaped by ONNX Runtime, never run."""

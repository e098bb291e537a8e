"""ONNX models as graphs: read from files, optimised and shaped by ONNX Runtime, never executed."""

"""Modules and ONNX models that are called inside DaCe programs."""

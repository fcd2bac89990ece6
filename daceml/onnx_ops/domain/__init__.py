"""Operators of daceml's own ONNX domains, which ONNX has no words for."""

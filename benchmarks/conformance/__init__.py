"""The ONNX backend node tests, in every form: see `__main__`."""

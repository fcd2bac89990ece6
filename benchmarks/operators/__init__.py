"""A campaign of random uses of ONNX operators: see `__main__`."""

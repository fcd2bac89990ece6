"""Opens a stored program and calls it; needs neither DaCe nor ONNX, nor whatever made the program."""

"""What ONNX says of an operator, and the library node that carries it."""

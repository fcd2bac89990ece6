"""An ONNX model becomes a network: check, normalize, infer shapes, translate node by node."""

"""An exported program becomes an ONNX model that keeps the semantics of training."""

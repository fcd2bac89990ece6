"""From PyTorch and ONNX to a network: capture, export, import."""

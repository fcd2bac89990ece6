"""From PyTorch and ONNX to a network: export, translation, import, and the module that users call."""

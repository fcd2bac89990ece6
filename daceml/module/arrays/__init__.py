"""Arguments and results that are not PyTorch tensors: DLPack, CuPy, NumPy, streams."""

"""Steps of PyTorch's optimizers as networks."""

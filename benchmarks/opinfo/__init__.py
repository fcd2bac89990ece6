"""Every operator of torch's own database of operators, compiled, next to eager PyTorch."""

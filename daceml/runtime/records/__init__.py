"""Records that a stored program carries next to its code: interface, passes, gradients, kernels."""

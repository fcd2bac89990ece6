"""What happens on the machine: building kernels, the cache, buffers, launching, and the PyTorch custom op."""

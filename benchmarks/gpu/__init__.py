"""What daceml does on a CUDA device, in shards of a few minutes: python -m benchmarks.gpu."""

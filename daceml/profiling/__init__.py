"""Traces of training runs: recording them, and reading those of torch.profiler."""

"""Predictions beside the real thing: python -m benchmarks.whatif."""

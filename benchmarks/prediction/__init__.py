"""Predictions for other hardware, beside what was measured there: python -m benchmarks.prediction."""

"""Replay of recorded runs, perturbation laws, and the speed of the simulator: python -m benchmarks.replay."""

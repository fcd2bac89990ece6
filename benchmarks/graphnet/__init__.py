"""Graphs that GraphNet has captured from real models (github.com/PaddlePaddle/GraphNet)."""

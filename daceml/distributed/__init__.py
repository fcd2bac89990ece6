"""Data-parallel training: every rank has the same model, other samples, and the same averaged gradients."""

"""Variants of a model, their predicted step times, and the greedy search of `auto_optimize="search"`."""

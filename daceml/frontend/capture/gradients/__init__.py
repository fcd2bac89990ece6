"""Gradients in a trace: those that users define, where they stop, and what changes them."""

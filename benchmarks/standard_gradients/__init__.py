"""Gradients of the standard's operators, at the standard's own cases, beside differences of their values."""

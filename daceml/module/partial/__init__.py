"""Partial compilation: a forward that cannot be one program is cut, and the remainder runs eagerly."""

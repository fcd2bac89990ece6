"""Optimisations as transformations of a task graph: one a file; each says what it assumes."""

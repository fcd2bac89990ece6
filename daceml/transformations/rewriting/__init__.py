"""Patterns over SDFGs, the rewrite that applies them, and the reasons it gives for refusing."""

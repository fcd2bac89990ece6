"""Runs of several ranks: what they said to each other, by which clocks, and all of them as one task graph."""

"""Sizes that a graph is right for: symbolic ones, their names and conditions."""

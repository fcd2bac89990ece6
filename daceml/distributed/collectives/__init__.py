"""Ranks that talk to each other: what a program's all-reduces go through."""

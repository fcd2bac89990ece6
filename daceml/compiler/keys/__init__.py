"""What decides whether a stored program may be used again."""

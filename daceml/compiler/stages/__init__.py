"""The stages between a network and a stored program."""

"""Clocks of several machines, aligned from the messages that they exchanged."""

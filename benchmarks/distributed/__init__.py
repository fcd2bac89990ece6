"""Runs of several ranks: what is simulated of them, beside what was recorded or is known."""

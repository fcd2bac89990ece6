"""Explorations: predictions of variants and of passes beside what was measured, and how long it takes."""

"""Measure devices (copies, calls, launches, resident blocks) and single operations on them."""

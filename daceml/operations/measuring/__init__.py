"""Measuring devices: rates of copies, what a call and a launch cost, which blocks are resident."""

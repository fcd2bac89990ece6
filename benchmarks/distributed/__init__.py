"""Runs on several devices and what they hold: simulated, beside what was measured."""

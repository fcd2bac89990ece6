"""Predictions of durations, and the database they rest on, beside what was measured."""

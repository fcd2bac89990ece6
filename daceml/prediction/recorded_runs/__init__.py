"""Predict a recorded run on another device, at another batch size or precision."""

"""Predict a step that never ran, from a model and its inputs."""

"""The version of daceml; setup.py reads it, too."""

__version__ = "0.1.0"

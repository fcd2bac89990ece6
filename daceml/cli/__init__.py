"""The `daceml` command; one command a file, `main.py` puts them together."""

"""What `daceml.explain` returns, as text, HTML and plain data."""

"""Programs that show daceml; `python -m examples.demo` is the shortest."""

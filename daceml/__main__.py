"""`python -m daceml`: the `daceml` command."""

from __future__ import annotations

from daceml.cli.main import app

if __name__ == "__main__":
    app(prog_name="daceml")

"""The `daceml` command. Exit code 0: fine; 1: a check failed; 2: the request cannot be carried out."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from daceml.cli.cache import cache
from daceml.cli.doctor import doctor
from daceml.cli.explain import explain
from daceml.cli.verify import verify
from daceml.errors import DacemlError


class _Commands(TyperGroup):
    """Prints daceml's errors as their text; a traceback only with --debug."""

    def main(self, args: Any = None, *rest: Any, **options: Any) -> Any:
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            return super().main(arguments, *rest, **options)
        except DacemlError as error:
            if "--debug" in arguments:
                traceback.print_exc()
            typer.echo(str(error), err=True)
            sys.exit(2)


app = typer.Typer(
    cls=_Commands,
    name="daceml",
    help="A data-centric compiler for PyTorch.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("doctor")(doctor)
app.command("explain")(explain)
app.command("verify")(verify)
app.add_typer(cache, name="cache")

if __name__ == "__main__":
    app()

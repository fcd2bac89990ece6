"""The `daceml` command.

Exit code 0: success; 1: a check failed, or the reader of the output closed it; 2: the request cannot be
carried out; 3: the machine was busy, so figures are missing; 130: interrupted, as shells expect it.
"""

from __future__ import annotations

import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from daceml.cli.cache import cache
from daceml.cli.compile import compile_model
from daceml.cli.database import database
from daceml.cli.devices import devices
from daceml.cli.doctor import doctor
from daceml.cli.explain import explain
from daceml.cli.explore import explore
from daceml.cli.export import export
from daceml.cli.gui import gui
from daceml.cli.learn import learn
from daceml.cli.measure import measure
from daceml.cli.old_spellings import current_spelling
from daceml.cli.predict import predict
from daceml.cli.sibling import Sibling
from daceml.cli.trace.group import trace
from daceml.cli.verify import verify
from daceml.cli.whatif import WhatIf, whatif
from daceml.errors import DacemlError
from daceml.version import __version__

_INTERRUPTED = 130


class _Commands(TyperGroup):
    """Prints errors as their text, in the form of daceml's; a traceback only with --debug."""

    def main(self, args: Any = None, *rest: Any, **options: Any) -> Any:
        arguments = current_spelling(sys.argv[1:] if args is None else args)
        _show_no_types_of_flags(self)
        try:
            return super().main(arguments, *rest, **options)
        except DacemlError as error:
            refusal = error
        except BrokenPipeError:
            # whoever read the output has seen enough; nothing is left to be flushed into the closed pipe
            sys.stdout = None
            sys.exit(1)
        except KeyboardInterrupt:
            _say_interrupted()
            sys.exit(_INTERRUPTED)
        except SystemExit as ended:
            if ended.code == _INTERRUPTED:  # typer ends so on Ctrl-C, and says nothing
                _say_interrupted()
            raise
        except Exception as error:
            refusal = _unforeseen(error)
        if "--debug" in arguments:
            traceback.print_exception(refusal.__cause__ or refusal)
        typer.echo(str(refusal), err=True)
        sys.exit(2)


def _show_no_types_of_flags(command: Any) -> None:
    """Let help texts list flags without `<bool>`, which reads as if they took a value."""
    for option in command.get_params(typer.Context(command)):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for child in getattr(command, "commands", {}).values():
        _show_no_types_of_flags(child)


def _say_interrupted() -> None:
    typer.echo("interrupted: nothing half-built or half-written is left", err=True)


def _unforeseen(error: Exception) -> DacemlError:
    """What is no refusal of daceml's: memory that runs out, a model that fails when it runs, a fault here."""
    reason = str(error).strip().splitlines()[:1]
    why = f"{type(error).__name__}: {reason[0]}" if reason else type(error).__name__
    if isinstance(error, MemoryError) or "not enough memory" in str(error) or "can't allocate" in str(error):
        refusal = DacemlError("there is not enough memory", why=why, fix="use smaller inputs")
    elif notes := getattr(error, "__notes__", None):
        # an exception of the user's forward, or of a hook: the note says which
        last = traceback.extract_tb(error.__traceback__)[-1]
        refusal = DacemlError(
            "the model's own code raised an exception",
            where=f"{last.filename}:{last.lineno}",
            why="\n".join([why, *notes]),
            fix="mend the model or its inputs; --debug prints where it was raised",
        )
    else:
        last = traceback.extract_tb(error.__traceback__)[-1]
        refusal = DacemlError(
            "the command failed in an unforeseen way",
            where=f"{last.filename}:{last.lineno}",
            why=why,
            fix="check the model and its inputs; if they are right, report what --debug prints",
        )
    refusal.__cause__ = error
    return refusal


app = typer.Typer(
    cls=_Commands,
    name="daceml",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # joins the lines of a paragraph
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"daceml {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """A data-centric compiler for PyTorch."""


app.command("doctor")(doctor)
app.command("compile")(compile_model)
app.command("explain")(explain)
app.command("verify")(verify)
app.command("explore")(explore)
app.command("gui")(gui)
app.command("export")(export)
app.command("whatif", cls=WhatIf)(whatif)
app.command("predict", cls=Sibling)(predict)
app.command("measure")(measure)
app.command("learn")(learn)
app.command("devices")(devices)
app.add_typer(trace, name="trace")
app.add_typer(database, name="db")
app.add_typer(cache, name="cache")

if __name__ == "__main__":
    app()

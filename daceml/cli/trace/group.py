"""The list of `daceml trace` commands."""

from __future__ import annotations

import typer

from daceml.cli.sibling import Sibling
from daceml.cli.trace.optimize import optimize
from daceml.cli.trace.predict import predict
from daceml.cli.trace.profile import CONTEXT as SCRIPT_CONTEXT
from daceml.cli.trace.profile import profile
from daceml.cli.trace.replay import replay
from daceml.cli.trace.whatif import CONTEXT, EPILOG, whatif

trace = typer.Typer(help="Record runs, and replay and question their traces.", no_args_is_help=True)

trace.command("profile", context_settings=SCRIPT_CONTEXT)(profile)
trace.command("replay")(replay)
trace.command("whatif", cls=Sibling, context_settings=CONTEXT, epilog=EPILOG)(whatif)
trace.command("predict", cls=Sibling)(predict)
trace.command("optimize")(optimize)

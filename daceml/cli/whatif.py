"""`daceml whatif`: predicted effects of compiler passes, other devices and more ranks on a model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daceml.cli import options
from daceml.cli.failing_inputs import blamed_on_inputs
from daceml.cli.inputs import make_inputs
from daceml.cli.model_reference import resolve
from daceml.cli.prediction_targets import OtherDevices, names_of
from daceml.cli.sibling import Sibling
from daceml.cli.work import working
from daceml.errors import WhatIfError

if TYPE_CHECKING:
    from daceml.exploration.effects import Effect

BUSY = 3
"""Exit code: other programs disturbed the measurements for as long as they were repeated."""

Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="PASS",
        help="pass of the standard recipe, such as fuse_subgraphs; repeatable (default: all)",
    ),
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="ADDITION",
        help="also use bf16, freeze, or products-in-loops; repeatable",
    ),
]


class WhatIf(Sibling):
    """Refuses questions about traces with the name of the command that answers them."""

    def other(self, ctx: Any) -> tuple[str, frozenset[str]]:
        """As the base class does, with the questions."""
        from daceml.simulation.whatif.registry import OPTIMIZATIONS

        path, named = super().other(ctx)
        return path, named | {f"--{question}" for question in OPTIMIZATIONS}


def whatif(
    model: options.Model,
    inputs: options.Inputs = None,
    inputs_file: options.InputsFile = None,
    train: options.Train = False,
    without: Without = None,
    added: With = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="measured effects, besides predicted ones")
    ] = False,
    to: OtherDevices = None,
    ranks: options.Ranks = None,
    wide: options.Wide = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Predict the effect of compiler passes on a model, among the other passes and alone.

    --to adds the time on other devices. `daceml trace whatif` answers questions about a recorded run.
    On a busy machine, measurements are repeated for 20 s; exit code 3 means that figures are missing.
    """
    devices = names_of(to)
    if ranks and not devices:
        raise WhatIfError("--ranks without a device", fix="name it as well: --to H100 --ranks 8")
    with working(quiet=quiet, imports_torch=True):
        from torch import nn

        from daceml.exploration.effects import effects
        from daceml.exploration.exploration_request import question
        from daceml.exploration.other_devices import elsewhere
        from daceml.module.module import eager_module
        from daceml.report.effects_text import devices_text, effects_json, effects_text
        from daceml.tuning.model_call import Subject

        module = resolve(model, train=train)
        if not isinstance(module, nn.Module):
            raise WhatIfError(f"{model} is not a module", fix="give path.py:Name of a module, or a trace")
        module = eager_module(module)
        call = make_inputs(module, inputs, None, inputs_file)
        found: tuple[Effect, ...] = ()
        with blamed_on_inputs(module, call):
            subject = Subject(module, call.args, call.kwargs, training=train)
            asked = question(subject, devices=devices, ranks=ranks or ())
            rows = tuple(elsewhere(module, call.args, call.kwargs, training=train, asked=asked))
            if without or added or not devices:
                found = effects(
                    module, *call.args, passes=without or (), additions=added or (), training=train,
                    measure=measure, **call.kwargs,
                )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(effects_json(found, rows), indent=2))
    else:
        step = "a training step" if train else "a forward pass"
        title = f"{type(module).__name__}, {step}; {options.mode_note(train=train)}"
        parts = (effects_text(found, title=title), devices_text(rows, train=train))
        typer.echo("\n\n".join(part for part in parts if part))
    if any(effect.unmeasured for effect in found):
        raise typer.Exit(BUSY)

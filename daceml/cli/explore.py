"""`daceml explore`: predict a model's variants, measure the most promising ones, and say which is best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daceml.cli import options
from daceml.cli.failing_inputs import blamed_on_inputs
from daceml.cli.inputs import make_inputs
from daceml.cli.model_reference import resolve
from daceml.cli.output_files import check_targets, written_aside
from daceml.cli.prediction_targets import OtherDevices, names_of
from daceml.cli.work import working
from daceml.errors import ConfigurationError
from daceml.time_budget import budget_s

if TYPE_CHECKING:
    from daceml.exploration.results import Objective, Row

Budget = Annotated[str, typer.Option("--budget", metavar="TIME", help="time limit: 90s, 2m, 1.5h")]
ObjectiveName = Annotated[str, typer.Option("--objective", help="time, memory or cost")]
Precisions = Annotated[
    list[str] | None,
    typer.Option(
        "--precision",
        metavar="TYPE",
        help="precision to try as well, such as bf16, which rounds values; repeatable",
    ),
]
Batches = Annotated[
    list[int] | None,
    typer.Option("--batch", metavar="N", help="number of samples to try as well; repeatable"),
]
Prices = Annotated[
    list[str] | None,
    typer.Option("--price", metavar="DEVICE=USD@DATE", help="price of an hour, such as H100=2.95@2026-05-20"),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="file for all variants, for `daceml gui`"),
]


def explore(
    model: options.Model,
    inputs: options.Inputs = None,
    inputs_file: options.InputsFile = None,
    dims: options.Dims = None,
    train: options.Train = False,
    budget: Budget = "2m",
    to: OtherDevices = None,
    objective: ObjectiveName = "time",
    precision: Precisions = None,
    batch: Batches = None,
    ranks: options.Ranks = None,
    price: Prices = None,
    measurements: Annotated[
        int, typer.Option(min=0, help="maximum number of measured variants besides the standard recipe")
    ] = 4,
    most: Annotated[int, typer.Option(min=1, help="predict at most this many different programs")] = 160,
    seed: Annotated[
        int, typer.Option(help="seed of measurement orders and of the model's random numbers")
    ] = 0,
    output: Output = None,
    every: Annotated[bool, typer.Option("--all", help="every variant and every refusal")] = False,
    wide: options.Wide = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Predict every variant of a model, and measure the most promising ones.

    Times with --batch, --to and --ranks are for as many samples as the given call has.
    """
    check_targets([("--output", output)])
    seconds = budget_s(budget)
    with working(quiet=quiet, imports_torch=True):
        from torch import nn

        from daceml.devices.catalogue import find_device
        from daceml.exploration.exploration_text import exploration_text
        from daceml.exploration.explore import explore as explored
        from daceml.prediction.prices import prices_of

        module = resolve(model, train=train)
        if not isinstance(module, nn.Module):
            raise ConfigurationError(
                f"{model} is not a module",
                why="variants are those of PyTorch modules",
                fix="give path.py:Name",
            )
        call = make_inputs(module, inputs, dims, inputs_file)
        names = names_of(to)
        prices = prices_of(price or (), [find_device(name) for name in names])
        try:
            with blamed_on_inputs(module, call):
                found = explored(
                    module, *call.args, **call.kwargs,
                    budget=seconds, devices=names, objective=_objective(objective), training=train,
                    precisions=precision or (), batches=batch or (), ranks=ranks or (), prices=prices,
                    measurements=measurements, most=most, seed=seed,
                    observe=None if quiet else _told,
                )  # fmt: skip
        except KeyboardInterrupt:
            typer.echo("what was compiled and measured is kept: the same command finds it", err=True)
            raise
    # first what has taken so long, then what a full disk may refuse
    if as_json:
        typer.echo(json.dumps(found.exploration.to_json(), indent=2))
    else:
        typer.echo(exploration_text(found.exploration, every=every))
        if found.best.variant != found.exploration.standard.variant and found.best.variant.here:
            typer.echo("daceml.explore(...) in Python: its compiled() is the winner, to be called")
    if output is not None:
        with written_aside("--output", output) as aside:
            found.exploration.save(aside)


def _objective(text: str) -> Objective:
    if text not in ("time", "memory", "cost"):
        raise ConfigurationError(f"--objective {text} is none", fix="take time, memory or cost")
    return text


def _told(row: Row) -> None:
    if row.measured is not None:
        typer.echo(f"{row.measured.ms:9.3f} ms measured   {row.variant.title}", err=True)
    elif row.outcome == "predicted" and row.predicted_ms is not None:
        typer.echo(f"{row.predicted_ms:9.3f} ms predicted  {row.variant.title}", err=True)
    elif row.outcome != "same program":
        typer.echo(f"{row.outcome:>12}            {row.variant.title}", err=True)

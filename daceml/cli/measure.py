"""`daceml measure`: how long single operations take here, those of a model or of a sampling plan."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daceml.cli import options
from daceml.cli.failing_inputs import blamed_on_inputs
from daceml.cli.inputs import make_inputs, parse_dims
from daceml.cli.model_reference import resolve
from daceml.cli.output_files import check_targets
from daceml.cli.work import working
from daceml.errors import ConfigurationError, EnvironmentProblem, ModelReferenceError
from daceml.text_tables import Part, render, table
from daceml.time_budget import budget_s

if TYPE_CHECKING:
    from daceml.operations.database.records import Operation
    from daceml.operations.measuring.campaign import Measurable, Outcome, Standing

    # an operation, and how often the forward and the backward pass have it
    Count = tuple[Operation, int, int]

_PLANS = (".toml", ".json")
_MODES = ("eager", "graph", "cold")
_INTERRUPTED = 130


def measure(
    what: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|PLAN",
            help="model, .onnx file (runs in ONNX Runtime), or sampling plan (.toml, .json)",
        ),
    ],
    inputs: options.Inputs = None,
    inputs_file: options.InputsFile = None,
    dims: Annotated[
        list[str] | None,
        typer.Option("--dim", metavar="NAME=SIZE", help="size of a named dimension of a .onnx file"),
    ] = None,
    train: Annotated[
        bool,
        typer.Option("--train", help="training mode, with the operations of the backward pass"),
    ] = False,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="operation database; rows that it already has are not measured again",
        ),
    ] = Path("measurements.db"),
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="eager: plain calls; graph: captured CUDA graph; cold: swept caches",
        ),
    ] = "eager",
    device: Annotated[
        str, typer.Option("--device", metavar="DEVICE", help="cpu, or cuda with an index: cuda:0")
    ] = "cpu",
    jobs: Annotated[
        int,
        typer.Option("--jobs", min=1, metavar="N", help="concurrent processes, which disturb each other"),
    ] = 1,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget", metavar="TIME", help="time limit, after which no operation starts: 90s, 2m, 1h"
        ),
    ] = None,
    wide: options.Wide = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Measure single operations: the different operations of a model, or samples of a plan.

    ONNX Runtime runs the nodes of a .onnx file one by one. docs/measuring.md describes sampling plans.
    """
    limit_s = float("inf") if budget is None else budget_s(budget)
    if mode not in _MODES:
        raise ConfigurationError(f"--mode {mode} is none", fix=f"take {', '.join(_MODES)}")
    plan = Path(what) if what.endswith(_PLANS) else None
    check_targets([("--output", output)], read=plan)

    with working(quiet=quiet, imports_torch=True):
        from daceml.operations.database.store import OpDatabase
        from daceml.operations.measuring.campaign import Campaign
        from daceml.operations.measuring.executors import processes
        from daceml.operations.measuring.one_operation import Settings
        from daceml.operations.measuring.sampling_plan import read_plan

        _check_device(device)
        settings = Settings(mode=mode, device=device)  # pyright: ignore[reportArgumentType]

        counts: tuple[Count, ...] = ()
        chosen: dict[str, Any] = {}
        todo: tuple[Measurable, ...]
        if dims and not what.endswith(".onnx"):
            raise ConfigurationError(
                "--dim belongs to a .onnx file", why="nothing else has named dimensions", fix="leave it out"
            )
        if plan is not None:
            if inputs or inputs_file or train:
                raise ConfigurationError(
                    "--input, --inputs and --train belong to a model",
                    why="a sampling plan has sizes and directions of its own",
                    fix="leave them out",
                )
            todo = read_plan(plan)
        elif what.endswith(".onnx"):
            if inputs or inputs_file or train or mode != "eager" or device != "cpu":
                raise ModelReferenceError(
                    f"{what} is measured without --input, --inputs, --train, --mode and --device",
                    why="a file has its own inputs and no backward pass, and ONNX Runtime runs its nodes on "
                    "the processor",
                    fix="leave them out, or name the module that it was exported from",
                )
            counts, todo, chosen = _nodes(Path(what), dims)
        else:
            counts, todo = _calls(what, inputs, inputs_file, train=train)
        campaign = Campaign(
            settings=settings, executor=processes(jobs), workers=jobs, budget_s=limit_s, observe=_show,
            **chosen,
        )  # fmt: skip
        with OpDatabase(output) as database:
            outcome = campaign.run(todo, database)
        told = _as_json(outcome, counts, output) if as_json else _text(outcome, output)
    typer.echo(json.dumps(told, indent=2) if as_json else told)
    if outcome.interrupted:
        raise typer.Exit(_INTERRUPTED)


def _check_device(device: str) -> None:
    import torch

    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ConfigurationError(f"--device {device} is none", fix="take cpu, cuda or cuda:1")
    count = torch.cuda.device_count() if device != "cpu" else 0
    if device != "cpu" and int(device.partition(":")[2] or 0) >= count:
        raise EnvironmentProblem(
            f"there is no device {device}",
            why=f"torch {torch.__version__} sees {count}",
            fix="daceml doctor says what is missing; --device cpu measures the processor",
        )


def _calls(
    reference: str, inputs: list[str] | None, file: Path | None, *, train: bool
) -> tuple[tuple[Count, ...], tuple[Measurable, ...]]:
    """The different calls of a module."""
    from torch import nn

    from daceml.operations.measuring.campaign import Job
    from daceml.operations.measuring.model_calls import model_calls

    model = resolve(reference, train=train)
    assert isinstance(model, nn.Module)
    called = make_inputs(model, inputs, None, file)
    with blamed_on_inputs(model, called):
        found = model_calls(model, called.args, called.kwargs, backward=train)
    counts = tuple((one.call.operation(), one.forward, one.backward) for one in found)
    return counts, tuple(Job(call=one.call) for one in found)


def _nodes(
    path: Path, dims: list[str] | None
) -> tuple[tuple[Count, ...], tuple[Measurable, ...], dict[str, Any]]:
    """The different nodes of an ONNX file, and with what a campaign measures them."""
    from daceml.operations.measuring.onnx_nodes import measured_node, node_environment, node_jobs

    found = node_jobs(path, parse_dims(dims or ()))
    counts = tuple((one.job.operation, one.forward, 0) for one in found)
    chosen = {"measure_job": measured_node, "where": node_environment()}
    return counts, tuple(one.job for one in found), chosen


def _show(standing: Standing) -> None:
    from daceml.runtime.progress import publish

    left = "" if standing.left_s is None else f", {_duration(standing.left_s)} left"
    publish(f"measuring{left}", standing.done, standing.total)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min"


def _as_json(outcome: Outcome, counts: tuple[Count, ...], output: Path) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "output": str(output),
        "measured": [asdict(one) for one in outcome.measured],
        "known": outcome.known,
        "refused": [
            {"operation": asdict(one.job.operation), "reason": one.reason} for one in outcome.refused
        ],
        "left": len(outcome.left),
        "interrupted": outcome.interrupted,
        "calls": [
            {"operation": asdict(operation), "forward": forward, "backward": backward}
            for operation, forward, backward in counts
        ],
    }


def _text(outcome: Outcome, output: Path) -> str:
    slowest = sorted(outcome.measured, key=lambda entry: -entry.duration.median_s)
    rows = table("operation", "direction", "median us", "MAD us", "shapes", left=2, words=("shapes",))
    for entry in slowest:
        one, took = entry.operation, entry.duration
        shapes = " ".join("x".join(map(str, operand.shape)) or "scalar" for operand in one.operands)
        spread = f"{took.mad_s * 1e6:.2f}" if took.mad_s is not None else ""
        rows.add_row(one.operator, one.direction, f"{took.median_s * 1e6:.2f}", spread, shapes)
    parts: list[Part] = [rows] if slowest else []
    parts += [f"refused: {one.job.title}: {one.reason}" for one in outcome.refused]
    parts.append(
        f"{len(outcome.measured)} measured, {outcome.known} known before, {len(outcome.refused)} refused, "
        f"{len(outcome.left)} left, in {output}"
    )
    if outcome.left:
        parts.append("the same command continues from here")
    return render(*parts)

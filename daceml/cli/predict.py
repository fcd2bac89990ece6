"""`daceml predict`: a recorded run, or a model, on devices that are not here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from daceml.cli import options
from daceml.cli.prediction_targets import check_criterion, devices_of
from daceml.errors import DeviceError, ImplausibleAnswerError, PredictionError

if TYPE_CHECKING:
    from daceml.devices.specification import Device
    from daceml.operations.estimate import DurationSource
    from daceml.prediction.recorded_runs.device_prediction import DevicePrediction
    from daceml.prediction.recorded_runs.retiming_rules import Rule

Subjects = Annotated[
    list[str],
    typer.Argument(
        metavar="TRACE...|MODEL",
        help="torch.profiler traces of one model with different batches, or a model",
        show_default=False,
    ),
]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="DEVICE[,DEVICE]...",
        help="target devices: names of `daceml devices`, or files that describe one",
        show_default=False,
    ),
]
Origin = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="DEVICE", help="device that recorded the run, if the trace does not name it"
    ),
]
Batch = Annotated[
    float | None,
    typer.Option(
        "--batch",
        metavar="N",
        help="samples in a step; for a trace, needs --batch-recorded",
    ),
]
Recorded = Annotated[
    str | None,
    typer.Option(
        "--batch-recorded",
        metavar="N[,N]...",
        help="samples in a recorded step of each trace",
    ),
]
Prices = Annotated[
    list[str] | None,
    typer.Option(
        "--price", metavar="DEVICE=USD@DATE", help="price of an hour, repeatable: H100=2.95@2026-05-20"
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--precision", metavar="bf16|fp16|fp8", help="precision on the target; tf32 for models only"
    ),
]
Database = Annotated[
    Path | None,
    typer.Option("--database", metavar="FILE", help="operation database of `daceml measure`"),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="TRACE,TRACE",
        help="runs of another model on both devices, which correct the ratios; repeatable",
    ),
]
HostFactor = Annotated[
    float,
    typer.Option("--host-factor", metavar="X", help="scale factor for host time on the target"),
]


Models = Annotated[
    Path | None,
    typer.Option("--models", metavar="FILE", help="models of operations of `daceml learn`"),
]
Inference = Annotated[
    bool,
    typer.Option("--inference", help="forward pass only (of a model; default: forward, backward, optimizer)"),
]
Together = Annotated[
    int, typer.Option("--devices", metavar="N", help="number of data-parallel devices, 1 to 8 (of a model)")
]
Optimizer = Annotated[
    str, typer.Option("--optimizer", metavar="NAME", help="optimizer of torch.optim, or none (of a model)")
]
SizeOfDim = Annotated[
    list[str] | None,
    typer.Option("--dim", metavar="NAME=SIZE", help="size of a named dimension of a .onnx file"),
]


class Criterion(StrEnum):
    """By what rows are sorted."""

    TIME = "time"
    THROUGHPUT = "throughput"
    COST = "cost"


Sort = Annotated[Criterion, typer.Option("--sort", help="criterion that sorts the rows, best first")]
Kinds = Annotated[bool, typer.Option("--kinds", help="time of each kind of kernel")]


class _How(TypedDict):
    """What predictions of all devices share."""

    source: DurationSource | None
    references: Rule | None
    host_factor: float


def predict(
    subjects: Subjects,
    to: To,
    origin: Origin = None,
    batch: Batch = None,
    batch_recorded: Recorded = None,
    price: Prices = None,
    sort: Sort = Criterion.TIME,
    precision: Precision = None,
    database: Database = None,
    models: Models = None,
    reference: References = None,
    host_factor: HostFactor = 1.0,
    kinds: Kinds = False,
    inputs: options.Inputs = None,
    inputs_file: options.InputsFile = None,
    dims: SizeOfDim = None,
    inference: Inference = False,
    together: Together = 1,
    optimizer: Optimizer = "adam",
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Predict a step of a recorded run, or of a model, on other devices: time, throughput, cost.

    A model is path.py:Name, package.module:Name or a .onnx file; --batch sets the first size of its inputs.
    """
    if any(is_model(one) for one in subjects):
        if len(subjects) > 1:
            raise PredictionError("one model is predicted at a time", fix="name one model, or traces alone")
        _refuse(
            "a model",
            {
                "--from": origin, "--batch-recorded": batch_recorded, "--reference": reference,
                "--host-factor": host_factor != 1,
            },
        )  # fmt: skip
        from daceml.cli.predict_model import predict_model

        predict_model(
            subjects[0], to=to, batch=batch, price=price, sort=sort.value, precision=precision,
            database=database, models=models, inputs=inputs, inputs_file=inputs_file, dims=dims,
            train=not inference, devices=together, optimizer=optimizer, layers=kinds, as_json=as_json,
            quiet=quiet,
        )  # fmt: skip
        return
    _refuse(
        "a recorded run",
        {
            "--input": inputs, "--inputs": inputs_file, "--dim": dims, "--inference": inference,
            "--devices": together != 1, "--optimizer": optimizer != "adam",
        },
    )  # fmt: skip
    from daceml.prediction.prices import prices_of
    from daceml.report.device_prediction_text import (
        by_criterion,
        device_prediction_json,
        device_prediction_text,
    )

    devices = devices_of(to)
    prices = prices_of(price or (), devices)
    check_criterion(sort.value, prices)
    references = _references(reference or ())
    batches = _batches(batch_recorded, batch, len(subjects))
    with ExitStack() as open_files:
        source = None if database is None and models is None else _source(open_files, database, models)
        predictions = _predicted(
            [Path(one) for one in subjects], devices, origin=origin, batch=batch, batches=batches,
            precision=precision, how={"source": source, "references": references, "host_factor": host_factor},
        )  # fmt: skip
    ordered = by_criterion(predictions, prices, sort.value)
    if as_json:
        typer.echo(json.dumps(device_prediction_json(ordered, prices), indent=2))
    else:
        typer.echo(device_prediction_text(ordered, prices, kinds=kinds or len(ordered) == 1))


def _refuse(what: str, given: dict[str, object]) -> None:
    """Options of the other kind of prediction."""
    wrong = [name for name, value in given.items() if value]
    if wrong:
        raise PredictionError(
            f"{', '.join(wrong)} says nothing of {what}",
            why="a model has shapes and a recorded run has times; each is asked in its own way",
            fix="leave it out: daceml predict --help",
        )


def is_model(subject: str) -> bool:
    """Whether an argument is a model: `path.py:Name`, `package.module:Name` or a `.onnx` file."""
    return subject.endswith(".onnx") or ":" in Path(subject).name


def _source(open_files: ExitStack, database: Path | None, models: Path | None) -> DurationSource:
    from daceml.cli.learn import learned_durations
    from daceml.operations.database.store import OpDatabase
    from daceml.operations.duration_chain import DurationLadder

    rows = None if database is None else open_files.enter_context(OpDatabase(database, create=False))
    return DurationLadder(rows, learned=[] if models is None else [learned_durations(models, rows)])


def _predicted(
    traces: Sequence[Path],
    devices: Sequence[Device],
    *,
    origin: str | None,
    batch: float | None,
    batches: Sequence[float],
    precision: str | None,
    how: _How,
) -> list[DevicePrediction]:
    from daceml.prediction.recorded_runs.batch_sizes import BatchRun, with_batch
    from daceml.prediction.recorded_runs.cross_device import RecordedRun
    from daceml.prediction.recorded_runs.precision_change import in_precision
    from daceml.profiling.kineto import read_trace

    runs = [RecordedRun.of(read_trace(trace), origin=origin) for trace in traces]
    found: list[DevicePrediction] = []
    for device in devices:
        try:
            changes = [] if precision is None else [in_precision(precision, device)]
            if batch is None:
                samples = batches[0] if batches else None
                found.append(runs[0].on(device, optimizations=changes, batch=samples, **how))
            else:
                known = [BatchRun(run=run, batch=one) for run, one in zip(runs, batches, strict=True)]
                found.append(with_batch(known, batch, device, optimizations=changes, **how))
        except (DeviceError, ImplausibleAnswerError) as error:
            if len(devices) == 1:
                raise
            typer.echo(f"left out [{error.code}]: {device.name}: {error.what}", err=True)
    if not found:
        raise PredictionError(
            f"none of the devices can be predicted{f' in {precision}' if precision else ''}",
            why="the lines above say why of each",
            fix="take another precision, or describe the devices: docs/devices.md",
        )
    return found


def _references(pairs: Sequence[str]) -> Rule | None:
    from daceml.prediction.recorded_runs.reference_runs import reference_runs
    from daceml.profiling.kineto import read_trace

    named = [[Path(word) for word in pair.split(",") if word] for pair in pairs]
    for pair in named:
        if len(pair) != 2:
            raise PredictionError(
                f"{len(pair)} traces are no pair",
                why="a reference is one model, recorded on two devices",
                fix="--reference here.json.gz,there.json.gz",
            )
    return reference_runs([(read_trace(a), read_trace(b)) for a, b in named]) if named else None


def _batches(recorded: str | None, wanted: float | None, traces: int) -> list[float]:
    """Of each trace; none where nobody asks for samples."""
    try:
        batches = [float(word) for word in (recorded or "").split(",") if word.strip()]
    except ValueError as error:
        raise PredictionError(
            f"--batch-recorded {recorded!r} is no list of numbers",
            why=str(error),
            fix="--batch-recorded 8,16",
        ) from None
    if any(not 0 < one < float("inf") for one in batches):
        raise PredictionError(
            f"--batch-recorded {recorded} is no number of samples", fix="give numbers above 0"
        )
    several = traces > 1 and wanted is None
    if several or ((batches or wanted is not None) and len(batches) != traces):
        raise PredictionError(
            "several traces are for predicting another batch"
            if several
            else f"{len(batches)} recorded batches are given for {traces} traces",
            why="each of them is a run of the same model with its own batch",
            fix="say which batch is asked for and how many samples a step of each trace had, in their order: "
            "--batch 32 --batch-recorded 8,16",
        )
    return batches

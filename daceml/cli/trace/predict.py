"""`daceml trace predict`: a recorded run on other devices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from daceml.cli import options
from daceml.cli.prediction_targets import (
    Criterion,
    Database,
    Models,
    Prices,
    Sort,
    To,
    check_criterion,
    devices_of,
    predicted_each,
)
from daceml.cli.trace.trace_file import refuse_model
from daceml.cli.work import working
from daceml.errors import PredictionError
from daceml.runtime.progress import publish

if TYPE_CHECKING:
    from daceml.devices.specification import Device
    from daceml.operations.estimate import DurationSource
    from daceml.prediction.recorded_runs.device_prediction import DevicePrediction
    from daceml.prediction.recorded_runs.retiming_rules import Rule

Traces = Annotated[
    list[Path],
    typer.Argument(
        metavar="TRACE...",
        help="torch.profiler traces of one model, each with another batch",
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
    typer.Option("--batch", metavar="N", help="samples in a step to predict; needs --batch-recorded"),
]
Recorded = Annotated[
    str | None,
    typer.Option(
        "--batch-recorded",
        metavar="N[,N]...",
        help="samples in a recorded step of each trace",
    ),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="TRACE,TRACE",
        help="runs of another model on both devices, which correct the ratios; repeatable",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option("--precision", metavar="bf16|fp16|fp8", help="precision on the target"),
]
HostFactor = Annotated[
    float,
    typer.Option("--host-factor", metavar="X", help="scale factor for host time on the target"),
]
Kinds = Annotated[bool, typer.Option("--kinds", help="time of each kind of kernel")]


class _How(TypedDict):
    """What predictions of all devices share."""

    source: DurationSource | None
    references: Rule | None
    host_factor: float


def predict(
    traces: Traces,
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
    wide: options.Wide = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Predict a step of a recorded run on other devices: time, throughput, cost.

    `daceml predict` predicts a step of a model from shapes alone.
    """
    for trace in traces:
        refuse_model(trace, "predict")
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
    batches = _batches(batch_recorded, batch, len(traces))
    with ExitStack() as open_files, working(quiet=quiet):
        publish("reading and replaying the traces")
        source = None if database is None and models is None else _source(open_files, database, models)
        predictions = _predicted(
            traces, devices, origin=origin, batch=batch, batches=batches,
            precision=precision, how={"source": source, "references": references, "host_factor": host_factor},
        )  # fmt: skip
    ordered = by_criterion(predictions, prices, sort.value)
    if as_json:
        typer.echo(json.dumps(device_prediction_json(ordered, prices), indent=2))
    else:
        typer.echo(device_prediction_text(ordered, prices, kinds=kinds or len(ordered) == 1))


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

    def on(device: Device) -> DevicePrediction:
        changes = [] if precision is None else [in_precision(precision, device)]
        if batch is None:
            samples = batches[0] if batches else None
            return runs[0].on(device, optimizations=changes, batch=samples, **how)
        known = [BatchRun(run=run, batch=one) for run, one in zip(runs, batches, strict=True)]
        return with_batch(known, batch, device, optimizations=changes, **how)

    return predicted_each(devices, on, precision=precision)


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
    """Of each trace; empty where no samples are asked for."""
    try:
        batches = [float(word) for word in (recorded or "").split(",") if word.strip()]
    except ValueError as error:
        raise PredictionError(
            f"--batch-recorded {recorded!r} is not a list of numbers",
            why=str(error),
            fix="--batch-recorded 8,16",
        ) from None
    if any(not 0 < one < float("inf") for one in batches):
        raise PredictionError(
            f"--batch-recorded {recorded} is not a number of samples", fix="give numbers above 0"
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

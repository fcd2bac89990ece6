"""Runs recorded on two devices: each predicted from the other, kind of kernel by kind.

Blind: of the predicted run nothing is known but what was recorded on the other device. Once with the
catalogue's figures alone, once with another model's runs on both devices as a reference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import Bar
from daceml.devices.roofline import memory_bytes_per_s
from daceml.devices.specification import Device
from daceml.errors import PredictionError
from daceml.operations.database.canonical import operation_text
from daceml.prediction.recorded_runs.cross_device import HOST_STAYS, RecordedRun
from daceml.prediction.recorded_runs.device_run import device_tasks
from daceml.prediction.recorded_runs.recording_device import origin_of
from daceml.prediction.recorded_runs.reference_runs import ReferenceRuns, reference_runs
from daceml.prediction.recorded_runs.retimed_tasks import RetimedTask
from daceml.prediction.recorded_runs.retiming import retime
from daceml.profiling.kineto import read_trace
from daceml.profiling.trace import Trace
from daceml.simulation import build

FOLDERS = ("traces/models_h100", "traces/models_mi300")
SMALL, LARGE = "gaunernst_bert-small-uncased*.json.gz", "Qwen_Qwen1.5-0.5B-Chat*.json.gz"
KIND_ERROR = 0.20
PRODUCT_ERROR = 0.10
INSIDE = 0.9
ABOVE_LAUNCH_US = 10.0


def measured(folder: Path) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Both directions of both pairs."""
    small, large = ([_only(folder / place, name) for place in FOLDERS] for name in (SMALL, LARGE))
    rows = [row for pair in _directions(small) for row in kinds_of_kernels(*pair)]
    references = reference_runs([(large[0], large[1])])
    rows += [row for pair in _directions(small) for row in kinds_of_kernels(*pair, references)]
    rows += [row for pair in _directions(large) for row in matched_operations(*pair)]
    rows += [refusal(trace) for trace in large]
    return rows, bars(rows)


def kinds_of_kernels(
    here: Trace, there: Trace, references: ReferenceRuns | None = None
) -> Iterator[dict[str, Any]]:
    """A step's busy time of each kind, beside what was recorded there and two plain guesses."""
    run, truth = RecordedRun.of(here), RecordedRun.of(there)
    prediction = run.on(truth.origin, references=references)
    recorded = {one.kind: one.duration_us for one in truth.on(truth.origin).classes}
    bandwidth = _bandwidth_ratio(run.origin, truth.origin)
    for one in prediction.classes:
        seen_us = recorded.get(one.kind)
        if seen_us is None:
            continue
        yield {
            "what": "kind of kernel",
            "by": "data sheets" if references is None else "reference runs",
            "from": run.origin.name, "to": truth.origin.name, "kind": one.kind,
            "origin_us": one.recorded_us, "recorded_us": seen_us, "predicted_us": one.duration_us,
            "error": one.duration_us / seen_us - 1,
            "no_change_error": one.recorded_us / seen_us - 1,
            "bandwidth_error": one.recorded_us * bandwidth / seen_us - 1,
            "inside": one.low_us <= seen_us <= one.high_us,
            "host_stays": HOST_STAYS in prediction.assumptions,
        }  # fmt: skip


def matched_operations(here: Trace, there: Trace) -> Iterator[dict[str, Any]]:
    """Equal operations of both runs, wherever they stand: kernels whose launches are known."""
    origin, destination = origin_of(here), origin_of(there)
    predicted = _by_operation(here, origin, destination)
    recorded = _by_operation(there, destination, destination)
    found: defaultdict[str, list[tuple[float, float, float, bool]]] = defaultdict(list)
    for operation, calls in predicted.items():
        if operation not in recorded:
            continue
        seen_us = float(np.median([sum(one.recorded_us for one in call) for call in recorded[operation]]))
        call = calls[len(calls) // 2]
        columns = ("duration_us", "low_us", "high_us", "recorded_us")
        likely, low, high, was = (sum(getattr(one, name) for one in call) for name in columns)
        size = "10 us and more" if was >= ABOVE_LAUNCH_US else "less"
        for _ in range(min(len(calls), len(recorded[operation]))):
            found[f"{call[0].kind}, {size}"].append((likely, seen_us, was, low <= seen_us <= high))
    bandwidth = _bandwidth_ratio(origin, destination)
    for kind, pairs in sorted(found.items()):
        likely, seen, was, inside = (np.array(column) for column in zip(*pairs, strict=True))
        yield {
            "what": "matched operations",
            "from": origin.name, "to": destination.name, "kind": kind, "calls": len(pairs),
            "error": float(likely.sum() / seen.sum() - 1),
            "mean_error": float(np.abs(likely / seen - 1).mean()),
            "no_change_error": float(was.sum() / seen.sum() - 1),
            "bandwidth_error": float((was * bandwidth).sum() / seen.sum() - 1),
            "inside": float(inside.mean()),
        }  # fmt: skip


def refusal(trace: Trace) -> dict[str, Any]:
    """Why a run is not predicted as a whole."""
    try:
        RecordedRun.of(trace)
    except PredictionError as error:
        return {"what": "refusal", "from": origin_of(trace).name, "reason": str(error)}
    return {"what": "refusal", "from": origin_of(trace).name, "reason": ""}


def bars(rows: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """Each kind in each direction, then what is said of the rest."""
    made: list[Bar] = []
    for row in rows:
        if row["what"] == "kind of kernel":
            plain = min(abs(row["no_change_error"]), abs(row["bandwidth_error"]))
            name = f"bert-small from {row['from']} to {row['to']}, {row['kind']}, by {row['by']}"
            told = f"{row['predicted_us']:.1f} for {row['recorded_us']:.1f} us"
            made.append(Bar(name=f"{name}: error", figure=abs(row["error"]), limit=KIND_ERROR, note=told))
            guesses = f"no change {row['no_change_error']:+.0%}, bandwidth {row['bandwidth_error']:+.0%}"
            made.append(
                Bar(name=f"{name}: error over the better plain guess's", figure=abs(row["error"]) / plain,
                    limit=1.0, note=guesses)
            )  # fmt: skip
        elif row["what"] == "matched operations" and row["kind"].endswith("more"):
            name = f"Qwen1.5-0.5B from {row['from']} to {row['to']}, {row['kind']}: mean error"
            limit = PRODUCT_ERROR if row["kind"].startswith("GEMM") else KIND_ERROR
            made.append(Bar(name=name, figure=row["mean_error"], limit=limit, note=f"n={row['calls']}"))
    kinds = [row for row in rows if row["what"] == "kind of kernel"]
    outside = [row for row in kinds if not row["inside"]]
    note = ", ".join(f"{row['kind']} to {row['to']} by {row['by']}" for row in outside)
    name = "bert-small: share of kinds outside their limits"
    figure = len(outside) / len(kinds) if kinds else None
    made.append(Bar(name=name, figure=figure, limit=1 - INSIDE, note=note))
    silent = sum(not row["host_stays"] for row in kinds)
    name = "bert-small: predictions that do not say that host time stays"
    made.append(Bar(name=name, figure=silent, limit=0))
    reasons = [row["reason"] for row in rows if row["what"] == "refusal"]
    accepted = sum("kernels" not in reason for reason in reasons)
    told = "; ".join(reason.splitlines()[0] for reason in reasons if reason)
    made.append(Bar(name="Qwen1.5-0.5B: runs that are not refused", figure=accepted, limit=0, note=told))
    return made


def _by_operation(trace: Trace, origin: Device, destination: Device) -> dict[str, list[list[RetimedTask]]]:
    """Text of an operation -> the kernels of each call of it."""
    graph = build(trace)
    tasks = {task.task: task for task in device_tasks(graph, trace)}
    calls: defaultdict[int, list[RetimedTask]] = defaultdict(list)
    for one in retime(graph, trace, origin=origin, destination=destination).tasks:
        if tasks[one.task].call >= 0 and tasks[one.task].operation is not None:
            calls[tasks[one.task].call].append(one)
    found: defaultdict[str, list[list[RetimedTask]]] = defaultdict(list)
    for call in calls.values():
        operation = tasks[call[0].task].operation
        if operation is not None:
            found[operation_text(operation)].append(call)
    return found


def _bandwidth_ratio(origin: Device, destination: Device) -> float:
    return memory_bytes_per_s(origin).per_s / memory_bytes_per_s(destination).per_s


def _directions(pair: Sequence[Trace]) -> tuple[tuple[Trace, Trace], tuple[Trace, Trace]]:
    return (pair[0], pair[1]), (pair[1], pair[0])


def _only(folder: Path, pattern: str) -> Trace:
    (file,) = folder.glob(pattern)
    return read_trace(file)

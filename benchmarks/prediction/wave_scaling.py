"""Wave scaling of operators bound by memory: rows of NeuSight, each GPU from each other.

How kernels were launched is not known, so all are taken as many blocks of 256 threads: what memory binds does
not ask. Only rows of 50 us and more on both GPUs: shorter ones were timed with their launch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import Bar
from daceml.devices.catalogue import find_device
from daceml.devices.wave_scaling import KernelRun, scale_kernel
from daceml.operations.database.canonical import operation_text
from daceml.operations.database.importers.neusight import import_neusight
from daceml.operations.database.records import Entry, Operation
from daceml.operations.work.operator_work import work_of
from daceml.prediction.recorded_runs.retiming_rules import WITHIN

OPERATORS = ("add", "gelu", "softmax", "ln")
TABLES = "measurements/neusight/train/{operator}/p2.1.0"
LEAST_S = 50e-6
BLOCKS, THREADS, REGISTERS = 10_000, 256, 32
OUTSIDE = 0.1


def measured(folder: Path, *, quick: bool = False) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Every operator, of all pairs of GPUs; of one row in ten for a first look."""
    rows = [
        scaled(
            operator,
            (
                entry
                for file in sorted((folder / TABLES.format(operator=operator)).glob("*.csv.gz"))
                for entry in import_neusight(file, date="2026-11-20").entries
            ),
            every=10 if quick else 1,
        )
        for operator in OPERATORS
    ]
    return rows, bars(rows)


def scaled(operator: str, entries: Iterable[Entry], *, every: int = 1) -> dict[str, Any]:
    """How far predictions are off, as factors."""
    by_operation: defaultdict[str, dict[str, tuple[Operation, float]]] = defaultdict(dict)
    for entry in entries:
        operation = replace(entry.operation, kernel="")
        seconds = entry.duration.median_s
        by_operation[operation_text(operation)][entry.environment.device] = (operation, seconds)
    factors: list[float] = []
    for seen in list(by_operation.values())[::every]:
        for here, there in permutations(seen, 2):
            (operation, origin_s), (_, recorded_s) = seen[here], seen[there]
            work = work_of(operation)
            if min(origin_s, recorded_s) < LEAST_S or work is None:
                continue
            kernel = KernelRun(
                duration_us=origin_s * 1e6, blocks=BLOCKS, threads=THREADS, registers=REGISTERS,
                flops=work.flops, bytes_moved=work.bytes_moved,
            )  # fmt: skip
            found = scale_kernel(kernel, find_device(here), find_device(there))
            factors.append(abs(log(found.duration_us / (recorded_s * 1e6))))
    limit = log(WITHIN["wave scaling"][1])
    return {
        "operator": operator,
        "pairs": len(factors),
        "outside": sum(one > limit for one in factors),
        "median_factor": exp(float(np.median(factors))) if factors else None,
        "p90_factor": exp(float(np.quantile(factors, 0.9))) if factors else None,
    }


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """The share of all predictions that is outside the limits that are told."""
    pairs, outside = (sum(row[name] for row in rows) for name in ("pairs", "outside"))
    told = ", ".join(f"{row['operator']} x{row['p90_factor']:.2f}" for row in rows if row["pairs"])
    name = f"NeuSight by wave scaling, 50 us and more: share beyond a factor of {WITHIN['wave scaling'][1]}"
    figure = outside / pairs if pairs else None
    return [Bar(name=name, figure=figure, limit=OUTSIDE, note=f"n={pairs}; nine in ten within {told}")]

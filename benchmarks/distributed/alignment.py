"""Clocks that were moved, found again: in recorded traces, in runs drawn from them, in a run of our own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bars import Bar
from benchmarks.distributed.drawn_from_traces import drawn, shifted, worst_us
from benchmarks.distributed.gloo_ranks import record
from daceml.profiling.kineto import read_traces
from daceml.simulation.distributed.clocks.alignment import Objective, align
from daceml.simulation.distributed.clocks.timings import Timings
from daceml.simulation.distributed.matching import matched
from daceml.simulation.distributed.rank_run import rank_run

T3 = "traces/dlrm_8xV100"  # one host: the true offset is 0
OFFSETS_US = (500.0, 5_000.0, 1e6)
DRIFTS_PPM = (10.0, 100.0)
LIMIT_US = 5.0
MINUTE_US = 60e6


def measured(folder: Path, *, quick: bool = False) -> tuple[list[dict[str, Any]], list[Bar]]:
    """All cases; `quick` draws once instead of five times and runs Gloo for 10 s instead of 60."""
    recorded = _timings(folder / T3)
    rows = [*_recorded(recorded, rounds=2 if quick else 10)]
    rows += [*_drawn(recorded, rounds=1 if quick else 5)]
    rows += [*_own_run(seconds=10.0 if quick else 60.0)]
    return rows, judged(rows)


def judged(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """The worst error of each case that is promised."""
    return [
        Bar(
            name=f"alignment, {row['case']}: worst error of a clock",
            figure=row["worst_us"],
            limit=LIMIT_US,
            unit="us",
            note=f"{row['rounds']} rounds, median {row['median_us']:.2f} us,"
            f" {row['collectives']} collectives, {row['seconds']:.2f} s",
        )
        for row in rows
        if row["promised"]
    ]


def _timings(where: Path | Sequence[Path]) -> Timings:
    return matched(rank_run(trace) for trace in read_traces(where)).timings


def _recorded(timings: Timings, *, rounds: int) -> Iterator[dict[str, Any]]:
    """T3 with offsets injected, by both objectives."""
    ranks = timings.start_us.shape[1]
    for size_us in OFFSETS_US:
        for objective in ("ends", "variance"):
            cases: list[tuple[Timings, list[float], list[float]]] = []
            for seed in range(rounds):
                draw = np.random.default_rng(seed)
                # the whole offset on some rank, as the largest is what is promised
                offsets = [0.0, *draw.choice([-size_us, 0.0, size_us], ranks - 1)]
                cases.append((shifted(timings, offsets, [0.0] * ranks), offsets, [0.0] * ranks))
            case = f"8 recorded ranks, offsets of {size_us / 1e3:g} ms"
            yield _row(case, cases, objective=objective)


def _drawn(recorded: Timings, *, rounds: int) -> Iterator[dict[str, Any]]:
    """A minute of collectives with T3's jitter."""
    clocks = align(recorded)
    ranks = recorded.start_us.shape[1]
    settings: list[tuple[str, float, float, list[int] | None]] = [
        *((f"drift up to {ppm:g} ppm over 60 s", ppm, 0.0, None) for ppm in DRIFTS_PPM),
        ("10 % of 600 collectives are outliers", 0.0, 0.1, None),
        ("drift up to 100 ppm and 10 % outliers", 100.0, 0.1, None),
        ("two hosts of 4 ranks, drift and outliers", 100.0, 0.1, [0] * 4 + [1] * 4),
    ]
    for case, ppm, outliers, hosts in settings:
        cases: list[tuple[Timings, list[float], list[float]]] = []
        for seed in range(rounds):
            offsets, drifts = _clocks(ranks, ppm, hosts, np.random.default_rng(100 + seed))
            run = drawn(
                recorded, clocks, offset_us=offsets, drift_ppm=drifts, count=600, lasting_us=MINUTE_US,
                outliers=outliers, seed=seed,
            )  # fmt: skip
            cases.append((run, offsets, drifts))
        yield _row(f"drawn from 8 recorded ranks: {case}", cases, hosts=hosts)


def _clocks(
    ranks: int, ppm: float, hosts: list[int] | None, draw: np.random.Generator
) -> tuple[list[float], list[float]]:
    """Offsets of up to 1 s and drifts up to `ppm`, both of them on some rank; none on the first host."""
    of_host = np.arange(ranks) if hosts is None else np.array(hosts)
    count = int(of_host.max()) + 1
    offsets, drifts = draw.uniform(-1e6, 1e6, count), draw.uniform(-ppm, ppm, count)
    drifts[-1] = ppm
    offsets[0] = drifts[0] = 0.0
    return offsets[of_host].tolist(), drifts[of_host].tolist()


def _own_run(*, seconds: float) -> Iterator[dict[str, Any]]:
    """Two ranks on this machine, which has one clock: what was injected is the truth."""
    with tempfile.TemporaryDirectory() as folder:
        timings = _timings(record(Path(folder), ranks=2, seconds=seconds))
    for offset_us, ppm in ((0.0, 0.0), *((size, 0.0) for size in OFFSETS_US), (1e6, 10.0), (1e6, 100.0)):
        offsets, drifts = [0.0, offset_us], [0.0, ppm]
        moved = shifted(timings, offsets, drifts)
        case = f"2 ranks over Gloo, {seconds:g} s, offset {offset_us / 1e3:g} ms, drift {ppm:g} ppm"
        until_us = float(np.nanmax(timings.end_us))
        yield _row(case, [(moved, offsets, drifts)], until_us=until_us, drift=ppm > 0)


def _row(
    case: str,
    cases: Sequence[tuple[Timings, list[float], list[float]]],
    *,
    objective: Objective = "ends",
    hosts: list[int] | None = None,
    until_us: float | None = None,
    drift: bool | None = None,
) -> dict[str, Any]:
    errors: list[float] = []
    outliers = 0
    began = time.perf_counter()
    for timings, offsets, drifts in cases:
        found = align(timings, hosts, objective=objective, drift=drift)
        outliers = max(outliers, found.outliers)
        lasting_us = until_us if until_us is not None else float(np.nanmax(timings.end_us[:, 0]))
        errors.append(worst_us(found, offsets, drifts, lasting_us))
    return {
        "case": case if objective == "ends" else f"{case}, by dPRO's variance",
        "promised": objective == "ends",
        "rounds": len(cases),
        "collectives": len(cases[0][0]),
        "worst_us": max(errors),
        "median_us": float(np.median(errors)),
        "outliers_found": outliers,
        "seconds": (time.perf_counter() - began) / len(cases),
    }

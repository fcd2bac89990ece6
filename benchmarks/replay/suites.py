"""Replays of every trace in checkouts of other projects: python -m benchmarks.replay --suites.

$DACEML_SUITES holds the checkouts (TraceLens, HolisticTraceAnalysis, kineto, param, chakra). A file is a
trace if it names events of a profiler; what daceml refuses is counted with its reason. Archives are not
opened: unpack those of recorded traces (param's dlrm_kineto.tar.gz).
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from benchmarks.bars import Bar
from daceml.errors import DacemlError
from daceml.profiling.kineto import read_trace
from daceml.report.replay_text import warnings_of
from daceml.simulation.analysis.steps import step_error
from daceml.simulation.building.build import build
from daceml.simulation.engine import simulate

_BEGINNING = 1 << 20
_LEAST_REPLAYED, _MOST_MEDIAN, _MOST_UNWARNED = 0.97, 0.001, 0.02


def measured(limit_s: float) -> tuple[list[dict[str, Any]], list[Bar]]:
    """A row for each trace, small ones first, until the time is over; nothing without the checkouts."""
    folder = os.environ.get("DACEML_SUITES")
    if not folder or not Path(folder).is_dir():
        print("no suites: let DACEML_SUITES name a folder of checkouts of projects that hold traces")
        return [], []
    until, rows = monotonic() + limit_s, list[dict[str, Any]]()
    files = sorted(_traces(Path(folder)), key=lambda file: (file.stat().st_size, file))
    for file in files:
        if monotonic() > until:
            print(f"the time is over: {len(files) - len(rows)} traces are left")
            break
        rows.append({"case": file.relative_to(folder).as_posix(), **_row(file)})
        print(rows[-1], flush=True)
    return rows, bars_of(rows)


def bars_of(rows: list[dict[str, Any]]) -> list[Bar]:
    """What holds for all rows."""
    errors = [row["step_error"] for row in rows if "step_error" in row]
    unwarned = [row["step_error"] for row in rows if "step_error" in row and not row["warnings"]]
    faults = sum("fault" in row for row in rows)
    lost = 1 - len(errors) / len(rows) if rows else 1.0
    note = f"{len(errors)} of {len(rows)}"
    return [
        Bar(name="traces that end with a traceback", figure=faults, limit=0),
        Bar(name="share that is not replayed", figure=lost, limit=1 - _LEAST_REPLAYED, note=note),
        Bar(name="median step error", figure=median(errors) if errors else None, limit=_MOST_MEDIAN),
        Bar(name="largest error without a warning", figure=max(unwarned, default=0.0), limit=_MOST_UNWARNED),
    ]


def _row(file: Path) -> dict[str, Any]:
    try:
        schedule = simulate(build(read_trace(file)))
        return {
            "tasks": len(schedule.graph),
            "step_error": step_error(schedule),
            "warnings": list(warnings_of(schedule)),
        }
    except DacemlError as error:
        return {"refused": f"{error.what}: {error.why}"}
    except Exception as error:  # a traceback that a user would see
        return {"fault": f"{type(error).__name__}: {error}"}


def _traces(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*.json*"):
        if not file.is_file() or file.is_symlink():
            continue
        try:
            opened = gzip.open if file.suffix == ".gz" else open
            with opened(file, "rb") as content:
                beginning = content.read(_BEGINNING)
        except (OSError, EOFError, zlib.error):
            continue
        if b'"traceEvents"' in beginning and b'"ph"' in beginning:
            yield file

"""Programs and kernels of every cell of a first run, compiled for the device into a cache that travels.

They are compiled as the device machine would do it: tensors are on a CUDA device, so that graphs and keys are
the same there. A device that only stands in for one is enough, since nothing runs.
"""

from __future__ import annotations

import argparse
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu.case import Case
from benchmarks.gpu.first_run.cells import WITH_NETWORKS, Cells
from benchmarks.gpu.first_run.plan import CELLS, STEPS, Step
from benchmarks.gpu.first_run.rows import Row, is_wrong, read_rows
from benchmarks.gpu.first_run.step_cells import cells_of

COMPILE = "compile"
# What a machine with another processor finds in a cache; launcher and headers are made there.
TRAVELLING = ("kernels", "programs")
_PATIENCE = 10.0  # of a case, compared with a cell on the device machine, which has eight times the cores


def cases(*, quick: bool) -> list[Case]:
    """Every case of the run that compiles something, each program once, the steps in their order."""
    found: dict[tuple[object, ...], Case] = {}
    for case in _cases(quick):
        # what is timed is compiled once more, with dropout; the values of a block have its size
        found.setdefault((case.kind in ("replays", "times"), *case.key[1:4], _size(case)), case)
    return [replace(case, question=COMPILE) for case in found.values()]


def compile_all(results: Path, *, commit: str, quick: bool, budget_s: float) -> list[Row]:
    """Compile cases into the cache of this process, two at once, while there is time; return their rows."""
    step = Step(name="kit", limit_s=budget_s, proves="the kit", processes=2, until_time=True)
    end = time.monotonic() + budget_s
    options = argparse.Namespace(
        results=results, end=end, commit=commit, emulated=False, quick=quick, factor=_PATIENCE
    )
    results.unlink(missing_ok=True)
    Cells(step, options).run(cases(quick=quick))
    return read_rows(results)


def keep(cache: Path, archive: Path) -> dict[str, int]:
    """Write what travels of a cache into an archive; return the number of entries of each kind.

    Half of a program is text, and machine code has much that repeats: an archive has a quarter of the bytes.
    """
    kept: dict[str, int] = {}
    with tarfile.open(archive, "w:gz") as made:
        for kind in TRAVELLING:
            entries = [one for one in sorted((cache / kind).glob("*")) if (one / "entry.json").is_file()]
            for entry in entries:
                made.add(entry, f"{kind}/{entry.name}")
            kept[kind] = len(entries)
    return kept


def wrong(rows: list[Row]) -> list[str]:
    """Cases that did not compile, each with its reason."""
    return [f"{row['case']}: {row.get('failure')}" for row in rows if is_wrong(row)]


def left(rows: list[Row], *, quick: bool) -> list[Case]:
    """Cases for which there was no time: they are compiled on the device machine."""
    known = {(row["kind"], row["case"]) for row in rows if row["kind"] != "plan"}
    return [case for case in cases(quick=quick) if (case.kind, case.label) not in known]


def _cases(quick: bool) -> Iterator[Case]:
    for step in STEPS:
        if step.program == CELLS and step.name != "prepare":
            for case in cells_of(step.name, emulated=False, quick=quick):
                if case.kind in WITH_NETWORKS:
                    yield case


def _size(case: Case) -> str:
    return {"small": "small", "correctness": "usual"}.get(case.kind, "large")

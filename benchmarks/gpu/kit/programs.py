"""Programs and kernels of every cell of a first run, compiled for the device into a cache that travels.

They are compiled as the device machine would do it: tensors are on a CUDA device, so that graphs and keys are
the same there. A device that only stands in for one is enough, since nothing runs.
"""

from __future__ import annotations

import argparse
import shutil
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
    step = Step(name="kit", limit_s=budget_s, proves="what travels compiles", processes=2)
    options = argparse.Namespace(
        results=results, limit_s=budget_s, commit=commit, emulated=False, quick=quick, factor=_PATIENCE
    )
    results.unlink(missing_ok=True)
    Cells(step, options).run(cases(quick=quick))
    return read_rows(results)


def keep(cache: Path, folder: Path) -> dict[str, int]:
    """Copy what travels out of a cache into that of the kit; gives the number of entries of each kind."""
    shutil.rmtree(folder, ignore_errors=True)
    kept: dict[str, int] = {}
    for kind in TRAVELLING:
        entries = [entry for entry in sorted((cache / kind).glob("*")) if (entry / "entry.json").is_file()]
        for entry in entries:
            shutil.copytree(entry, folder / kind / entry.name)
        kept[kind] = len(entries)
    return kept


def wrong(rows: list[Row]) -> list[str]:
    """Cases that did not compile, each with its reason; not those for which time was up."""
    return [f"{row['case']}: {row.get('failure')}" for row in rows if is_wrong(row) and not row.get("late")]


def _cases(quick: bool) -> Iterator[Case]:
    for step in STEPS:
        if step.program == CELLS and step.name != "prepare":
            for case in cells_of(step.name, emulated=False, quick=quick):
                if case.kind in WITH_NETWORKS:
                    yield case


def _size(case: Case) -> str:
    return {"small": "small", "correctness": "usual"}.get(case.kind, "large")

"""The cells of one step, in processes that are replaced when a cell fails, with a row for each cell at once.

Where values are wrong or a launch fails, the kernels of the cell are checked one by one, and a row of kind
`diagnosis` names those that are wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from benchmarks.gpu.case import Case
from benchmarks.gpu.first_run.plan import STEPS, Step
from benchmarks.gpu.first_run.rows import Row, add_row, is_wrong
from benchmarks.gpu.first_run.step_arguments import parse
from benchmarks.gpu.first_run.step_cells import cells_of
from benchmarks.gpu.worker import WorkerProcess

CELL_LIMIT_S = 30.0
PATIENT_LIMIT_S = 90.0  # of what compiles
MOST_DIAGNOSES = 3  # of a step
_CLOSING_S = 5.0  # for ending processes, before the step itself is ended
WITH_NETWORKS = ("small", "values", "replays", "times", "correctness")
# Guard pages end a kernel where a comparison would find memory overwritten, so they come first.
QUESTIONS = {True: ("guarded", "kernels"), False: ("kernels",)}
_BLOCKING = "CUDA_LAUNCH_BLOCKING"


class Cells:
    """Measures cells until the step's time is up."""

    def __init__(self, step: Step, options: argparse.Namespace) -> None:
        self.step, self.options = step, options
        self.end: float = options.end - _CLOSING_S
        self.processes = 2 if options.emulated and step.processes > 1 else step.processes
        self._diagnoses = 0
        self._counting = threading.Lock()

    def run(self, cells: Sequence[Case]) -> None:
        """Measure all cells, several at once where the step says so."""
        plan = {"step": self.step.name, "kind": "plan", "cells": len(cells)}
        add_row(self.options.results, plan)
        waiting = iter(cells)
        taking = threading.Lock()

        def work() -> None:
            worker = WorkerProcess()
            try:
                while time.monotonic() < self.end:
                    with taking:
                        cell = next(waiting, None)
                    if cell is None:
                        return
                    self.measure(cell, worker)
            finally:
                worker.close()

        with ThreadPoolExecutor(self.processes) as pool:
            for done in [pool.submit(work) for _ in range(self.processes)]:
                done.result()

    def measure(self, cell: Case, worker: WorkerProcess) -> None:
        """Measure one cell, and find out what is wrong with it."""
        found = self.ask(cell, worker)
        if self.step.until_time and found.get("late") and time.monotonic() >= self.end:
            return  # one cell more than there was time for
        self.add(cell, found)
        if not is_wrong(found) or cell.question or found.get("late"):
            return
        if "failure" in found and self.step.blocking_again:
            seen = self.ask_blocking(cell)
            named = seen.get("failure") or f"{cell.label} does not fail with {_BLOCKING}=1"
            self.add(cell, {"kind": "diagnosis", "question": "blocking", "named": [named]})
        if cell.kind in WITH_NETWORKS and self.may_diagnose():
            for question in QUESTIONS[cell.emulated]:
                asked = replace(cell, question=question)
                seen = self.ask(asked, worker)
                named = seen.get("outside", [seen.get("failure", "")])
                figures = {name: seen.get(name) for name in ("kernels", "not_judged")}
                self.add(asked, {"kind": "diagnosis", "named": named, **figures})

    def ask(self, cell: Case, worker: WorkerProcess) -> Row:
        """What a worker finds within the time that is left."""
        patient = cell.question or self.step.until_time
        limit_s = (PATIENT_LIMIT_S if patient else CELL_LIMIT_S) * self.options.factor
        return worker(cell, max(1.0, min(limit_s, self.end - time.monotonic())))

    def ask_blocking(self, cell: Case) -> Row:
        """The same in a process whose launches wait, so that the one that fails is named."""
        before = os.environ.get(_BLOCKING)
        os.environ[_BLOCKING] = "1"
        worker = WorkerProcess()
        try:
            return self.ask(cell, worker)
        finally:
            worker.close()
            if before is None:
                del os.environ[_BLOCKING]
            else:
                os.environ[_BLOCKING] = before

    def may_diagnose(self) -> bool:
        """Whether there is time to look at kernels once more."""
        with self._counting:
            self._diagnoses += 1
            return self._diagnoses <= MOST_DIAGNOSES

    def add(self, cell: Case, found: Row) -> None:
        """Write the row of a cell."""
        row: dict[str, Any] = {
            "step": self.step.name, "case": cell.label, "kind": cell.kind, "name": cell.name,
            "mode": cell.mode, "precision": cell.precision, "emulated": cell.emulated,
            "question": cell.question, "commit": self.options.commit, **found,
        }  # fmt: skip
        add_row(self.options.results, row)
        said = row.get("failure") or row.get("outside") or row.get("named") or "right"
        print(f"{cell.label}: {said}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments, "Measure the cells of one step of a first run.")
    step = next(step for step in STEPS if step.name == options.step)
    if step.processes > 1:
        # each of these processes would start a pool of compilers of its own
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    Cells(step, options).run(
        chosen(cells_of(step.name, emulated=options.emulated, quick=options.quick), options)
    )
    return 0


def chosen(cells: Sequence[Case], options: argparse.Namespace) -> list[Case]:
    """The cells that the command line asks for."""
    return [cell for cell in cells if options.only is None or cell.name in options.only]


if __name__ == "__main__":
    sys.exit(main())

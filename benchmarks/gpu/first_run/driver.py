"""Runs steps one after the other, each as a process group with a time limit. Needs no package."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gpu.first_run.plan import SHORTEST_S, Step
from benchmarks.gpu.first_run.rows import Row, add_row, is_wrong, read_rows

Clock = Callable[[], float]
# rows of a step that are no cells: how many it has, what became of it, and what was found about a wrong cell
NO_CELLS = ("run", "plan", "step", "diagnosis")


@dataclass(frozen=True, kw_only=True)
class Run:
    """Where a run writes, and when it ends.

    Attributes:
        results: of all cells and steps.
        log: what the programs of steps print.
        end: when no step may run any more, by `clock`.
        factor: by which the limits of steps are stretched.
        words: further arguments of every step's program.
        environment: of every step's program.
    """

    results: Path
    log: Path
    end: float
    factor: float = 1.0
    words: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None
    clock: Clock = time.monotonic


def run_steps(steps: Sequence[Step], run: Run) -> list[Row]:
    """Run every step, whatever becomes of those before it; return and record a row for each.

    Where there is no device, the first step is the last one.
    """
    rows: list[Row] = []
    add_row(run.results, {"kind": "run", "steps": [step.name for step in steps]})
    for step in steps:
        print(f"{step.name}: {step.proves}", flush=True)
        row = run_step(step, run)
        add_row(run.results, row)
        rows.append(row)
        print(f"  {row['state']}, {row['seconds']:.0f} of {row['limit_s']:.0f} s, {row['cells']} cells, "
              f"{row['wrong']} wrong, {row['left']} left", flush=True)  # fmt: skip
        if why := _without_device(run):
            print(f"  {why}: the other steps are left out", flush=True)
            break
    return rows


def _without_device(run: Run) -> str:
    """Why no step can find anything; empty if there is a device."""
    wrong = [row for row in read_rows(run.results) if row["kind"] == "identity" and is_wrong(row)]
    return "; ".join(row.get("failure") or ", ".join(row["outside"]) for row in wrong)


def run_step(step: Step, run: Run) -> Row:
    """Run a step until it ends or its limit is reached, and say what became of it."""
    left_s = run.end - run.clock()
    limit_s = min(step.limit_s * (1.0 if step.until_time else run.factor), left_s)
    known = len(read_rows(run.results))
    begun = run.clock()
    state = "not begun: time was up" if left_s < SHORTEST_S else _ended(step, limit_s, run)
    rows = read_rows(run.results)[known:]
    cells = [row for row in rows if row["kind"] not in NO_CELLS]
    planned = [row["cells"] for row in rows if row["kind"] == "plan"]
    return {
        "kind": "step",
        "step": step.name,
        "state": state,
        "seconds": run.clock() - begun,
        "limit_s": max(limit_s, 0.0),
        "cells": len(cells),
        "left": 0 if step.until_time else sum(planned) - len(cells) if planned else int(not cells),
        "wrong": sum(map(is_wrong, cells)),
    }


def _ended(step: Step, limit_s: float, run: Run) -> str:
    """How a step ended; nothing that it has started is left."""
    command = [sys.executable, "-m", step.program, "--step", step.name, "--results", str(run.results)]
    # one clock for all processes of a machine
    command += ["--end", f"{time.monotonic() + limit_s:.1f}", *run.words]
    with run.log.open("ab") as log:
        log.write(f"== {step.name}\n".encode())
        log.flush()
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=None if run.environment is None else dict(run.environment),
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return "ended by its limit"
        finally:
            _end_group(process)
    return "done" if code == 0 else f"exit code {code}"


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

"""The function that measures each kind of case."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.gpu.case import Case
from benchmarks.gpu.correctness import correctness
from benchmarks.gpu.doctor import check
from benchmarks.gpu.environment import readings
from benchmarks.gpu.guarded import guarded
from benchmarks.gpu.guided import guided
from benchmarks.gpu.kernels import kernels
from benchmarks.gpu.networks import block, compile_only, prepare, replays, times, values
from benchmarks.gpu.overhead import overhead

Measure = Callable[[Case], dict[str, Any]]

MEASURES: dict[str, Measure] = {
    "check": check,
    "correctness": correctness,
    "block": block,
    "values": values,
    "small": values,
    "replays": replays,
    "guided": guided,
    "times": times,
    "autotune": times,
    "overhead": overhead,
}
QUESTIONS: dict[str, Measure] = {
    "prepare": prepare,
    "compile": compile_only,
    "kernels": kernels,
    "guarded": guarded,
}
TIMED = ("block", "replays", "guided", "times", "autotune", "overhead")


def measure(case: Case) -> dict[str, Any]:
    """Measure a case in this process, and leave nothing behind that the next one could meet."""
    try:
        if case.question:
            return QUESTIONS[case.question](case)
        row = MEASURES[case.kind](case)
        if case.kind in TIMED and not case.emulated:
            row["readings"] = readings()  # before the device has become idle
        return row
    finally:
        torch.compiler.reset()
        gc.collect()
        # After a kernel has failed, every CUDA call fails; its error would replace the first one.
        with contextlib.suppress(RuntimeError):
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

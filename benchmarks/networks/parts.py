"""What is measured of one network in one mode; each part in a process of its own: see process.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import ceilings, interleave, startup, waterfall
from benchmarks.interleave import Variant
from benchmarks.models.named import spec_named
from benchmarks.models.spec import ModelSpec
from benchmarks.parity import (
    compile_for_training_with_daceml,
    compile_with_daceml,
    count_with_daceml,
    programs_of_daceml,
)
from benchmarks.parity_static import inference
from benchmarks.parity_training import training
from benchmarks.peers import Mode, build_step, ways_of
from benchmarks.profiles import program_figures
from benchmarks.speed import DEFAULT, OURS
from benchmarks.training_memory import peak_bytes

# There is no comparison without these; their times with the default allocator are those that users have.
NEEDED = ("eager", OURS)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One network in one mode.

    Attributes:
        model: a name that `spec_named` knows.
        rounds: clean rounds of interleaved times.
        limit_s: after which no further round begins.
    """

    model: str
    mode: Mode
    rounds: int = 12
    limit_s: float = 300.0

    @property
    def find(self) -> Callable[[], ModelSpec]:
        return partial(spec_named, self.model)


def times(case: Case) -> dict[str, Any]:
    """Interleaved times of all ways: the rounds of a `Measurement`."""
    variants = [
        Variant(name=way, build=partial(build_step, case.find, case.mode, way), optional=way not in NEEDED)
        for way in ways_of(case.find(), case.mode)
    ]
    variants += [
        Variant(name=way + DEFAULT, build=partial(build_step, case.find, case.mode, way), allocator={})
        for way in NEEDED
    ]
    return interleave.measure(variants, rounds=case.rounds, limit_s=case.limit_s).to_data()


def parity(case: Case) -> dict[str, Any]:
    """Figures outside the limits of `benchmarks.parity`, for one seed."""
    spec = case.find()
    if case.mode == "training":
        seen = training(spec, compile_for_training_with_daceml, programs_of_daceml, seeds=(0,))
    else:
        seen = inference(spec, compile_with_daceml, count_with_daceml, seeds=(0,))
    return {
        "median_over_eager": seen.accuracy.median_over_eager,
        "outside": [bar.line() for bar in seen.bars() if not bar.met],
    }


def programs(case: Case) -> dict[str, Any]:
    """Kernels, bytes and levels of the programs, time in contractions, and the floor of this machine."""
    return program_figures(case.find, case.mode, ceilings.measure())


def memory(case: Case) -> dict[str, Any]:
    """Peak of live bytes in a training step of eager and of daceml."""
    return {way: peak_bytes(case.find, way) for way in ("eager", OURS)}


def compile_time(case: Case) -> dict[str, Any]:
    """Seconds until the first call is done, of new processes with an empty cache and with the filled one."""
    return {way: _starts(way, case) for way in (OURS, "inductor")}


def _starts(way: str, case: Case) -> dict[str, float]:
    how = way if case.mode == "inference" else f"{way}_training"
    with TemporaryDirectory() as cache:
        cold, warm = (startup.start_in_process(how, case.model, Path(cache)) for _ in range(2))
    return {"cold_s": cold["seconds"], "warm_s": warm["seconds"]}


def depth(case: Case) -> dict[str, Any]:
    """Seconds that a network alone takes to compile, with an empty cache; a later call is taken off."""
    how = OURS if case.mode == "inference" else f"{OURS}_training"
    with TemporaryDirectory() as cache:
        return {"compile_s": startup.start_in_process(how, case.model, Path(cache))["compile_seconds"]}


def gains(case: Case) -> dict[str, Any]:
    """What each pass brings."""
    return {"waterfall": waterfall.measure(case.find, case.mode, rounds=case.rounds, limit_s=case.limit_s)}


# The parts of a network by name; those of a training step only are skipped in inference.
PARTS: dict[str, Callable[[Case], dict[str, Any]]] = {
    "parity": parity,
    "times": times,
    "programs": programs,
    "memory": memory,
    "compile": compile_time,
}
TRAINING_ONLY = ("memory",)
INTERLEAVED = ("times", "waterfall")
ALL_PARTS = {**PARTS, "depth": depth, "waterfall": gains}

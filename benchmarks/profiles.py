"""Where a compiled network spends its time, forward and backward, beside what the machine could do."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.ceilings import Ceilings
from benchmarks.models.spec import ModelSpec
from benchmarks.peers import Mode, prepare

if TYPE_CHECKING:
    from daceml.runtime.program import Program
    from daceml.runtime.records.manifest import StepRecord

CALLS = 7

# program -> the clock of each of its steps, in microseconds
Clocks = Mapping[str, "ctypes.Array[ctypes.c_double]"]


def program_figures(find: Callable[[], ModelSpec], mode: Mode, machine: Ceilings) -> dict[str, Any]:
    """What the programs of a network move, compute and take.

    Returns:
        `kernels`, `bytes_moved`, `flops`, `floor_us`; `steps_us` and of these `contractions_us`, medians over
        some calls; and for each program its `levels`: name, and steps and bytes before and after.
    """
    from daceml.module.module import DaceModule
    from daceml.report.explanation.explanation import explanation
    from daceml.runtime.records.levels import load_levels

    ready = prepare(find, mode, "daceml")
    ready.step()
    assert isinstance(ready.run, DaceModule)
    with nullcontext() if mode == "training" else torch.no_grad(), find().casting():
        variant, _ = ready.run.session.variant(ready.inputs, {})
    found = {"inference" if variant.backward is None else "forward": variant.program}
    if variant.backward is not None:
        found["backward"] = variant.backward.program
    with _clocks(found) as clocks:
        calls = [_timed(ready.step, clocks) for _ in range(CALLS)]
    steps = {name: program.manifest.steps for name, program in found.items()}
    every = [step for part in steps.values() for step in part]
    contractions = [
        sum(us[name][place] for name, part in steps.items() for place, s in enumerate(part) if _contracts(s))
        for us in calls
    ]
    levels: dict[str, Any] = {}
    for name, program in found.items():
        records = load_levels(program.stored.folder)
        explained = explanation(name, program.manifest, records, {})
        levels[name] = [{"level": x.name, "before": x.before, "after": x.after} for x in explained.levels]
    return {
        "kernels": len(every),
        "bytes_moved": sum(step.unique_bytes for step in every),
        "flops": sum(step.flops for step in every),
        "floor_us": sum(step_floor_us(step, machine) for step in every),
        "steps_us": median(sum(map(sum, us.values())) for us in calls),
        "contractions_us": median(contractions),
        "levels": levels,
    }


def step_floor_us(step: StepRecord, machine: Ceilings) -> float:
    """The least time of a step: of its bytes, special functions or multiplications, whichever is longest."""
    moving_us = machine.floor_us(step.unique_bytes, step.special_functions)
    return max(moving_us, 1e6 * step.flops / machine.flops_per_s)


def _contracts(step: StepRecord) -> bool:
    """Whether a step multiplies matrices or convolves: vendor calls that say what they compute."""
    return step.kind in ("aten", "onnxruntime") and step.flops > 0


def _timed(step: Callable[[], object], clocks: Clocks) -> dict[str, list[float]]:
    for clock in clocks.values():
        ctypes.memset(clock, 0, ctypes.sizeof(clock))
    step()
    return {name: list(clock) for name, clock in clocks.items()}


@contextmanager
def _clocks(programs: Mapping[str, Program]) -> Generator[Clocks]:
    """Let programs add the time of every step to arrays."""
    from daceml.runtime import launcher

    clocks = {name: (ctypes.c_double * len(p.manifest.steps))() for name, p in programs.items()}
    try:
        for name, program in programs.items():
            launcher.set_profile(program.number, clocks[name])
        yield clocks
    finally:
        for program in programs.values():
            launcher.set_profile(program.number, None)

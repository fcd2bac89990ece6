"""The kernels of a device that a program launches: sizes, what the assembler says, occupancy in theory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from daceml.devices.occupancy import LIMITS, Occupancy, occupancy
from daceml.text_tables import render, table

if TYPE_CHECKING:
    from daceml.runtime.records.manifest import LaunchRecord, StepRecord

_DETAILS = ("limited by", "B shared, stack, spilled")
HEADERS = ("kernel", "calls", "grid", "block", "registers", "occupancy", *_DETAILS)


def launch_occupancy(launch: LaunchRecord) -> Occupancy | None:
    """None in emulation, and for an architecture without known limits."""
    if launch.facts is None or launch.architecture not in LIMITS:
        return None
    return occupancy(
        launch.architecture,
        threads=launch.threads,
        registers=launch.facts.registers,
        shared_bytes=launch.facts.shared_bytes + launch.shared_bytes,
    )


def kernel_rows(steps: Iterable[StepRecord]) -> list[tuple[str, ...]]:
    """A row for each distinct kernel and grid, in the order of their first calls."""
    calls: dict[LaunchRecord, int] = {}
    for step in steps:
        if step.launch is not None:
            calls[step.launch] = calls.get(step.launch, 0) + 1
    return [_row(launch, count) for launch, count in calls.items()]


def device_kernels_text(steps: Iterable[StepRecord]) -> str:
    """A table with a headline; empty where nothing runs on a device."""
    steps = tuple(steps)
    rows = kernel_rows(steps)
    if not rows:
        return ""
    shown = table(*HEADERS, words=("limited by",), details=_DETAILS)
    for row in rows:
        shown.add_row(*row)
    return f"{headline(steps)}\n{render(shown)}"


def headline(steps: Iterable[StepRecord]) -> str:
    """What kernels were compiled for."""
    launches = [step.launch for step in steps if step.launch is not None]
    for_what = sorted({one.architecture for one in launches if one.architecture is not None})
    if not for_what:
        return "kernels of a device, emulated: registers and occupancy are known once nvcc compiles them"
    capabilities = ", ".join(f"{one / 10:.1f}" for one in for_what)
    return f"kernels of a device, for compute capability {capabilities}:"


def _row(launch: LaunchRecord, calls: int) -> tuple[str, ...]:
    grid = _extents(launch.grid)
    sizes = (f"up to {grid}" if launch.goes_round else grid, _extents(launch.block))
    facts, found = launch.facts, launch_occupancy(launch)
    of_compiler = ("", "")
    if facts is not None:
        shared = facts.shared_bytes + launch.shared_bytes
        of_compiler = (str(facts.registers), f"{shared}, {facts.stack_bytes}, {facts.spill_bytes}")
    held = ("", "") if found is None else (f"{100 * found.share:.0f} %", " and ".join(found.limited_by))
    registers, memory = of_compiler
    return (launch.function, str(calls), *sizes, registers, *held, memory)


def _extents(extents: tuple[int | str, ...]) -> str:
    """`256` for (256, 1, 1)."""
    shown = list(extents)
    while len(shown) > 1 and shown[-1] == 1:
        shown.pop()
    return " x ".join(map(str, shown))

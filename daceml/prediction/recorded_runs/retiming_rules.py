"""How the time of one task on another device follows from its time here: one rule a way.

A rule answers with a time, or with a sentence that says why it cannot; the next rule is asked then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from daceml.devices.roofline import (
    USUAL_FLOOR_US,
    RooflineTime,
    achieved_flops_per_s,
    expected,
    memory_bytes_per_s,
)
from daceml.devices.specification import Device
from daceml.devices.wave_scaling import KernelRun, scale_kernel
from daceml.errors import ConfigurationError, DeviceError
from daceml.operations.estimate import DurationSource
from daceml.prediction.recorded_runs.device_run import DeviceTask
from daceml.prediction.recorded_runs.retimed_tasks import Guess, Method
from daceml.profiling.kernel_class import PRODUCTS
from daceml.simulation.network.links import LINKS
from daceml.simulation.whatif.kernel_classes import FP8, HALF, HOST_COPY, TF32


@dataclass(frozen=True, kw_only=True)
class Question:
    """From where to where.

    Attributes:
        source: of durations of operations on the destination; None where there is none.
    """

    origin: Device
    destination: Device
    source: DurationSource | None = None

    @property
    def same_vendor(self) -> bool:
        return self.origin.vendor == self.destination.vendor


Rule = Callable[[DeviceTask, Question], Guess | str]

# By which factor nine in ten are off at most, down and up: quantiles of what `benchmarks.prediction` sees.
# Wave scaling: rows of NeuSight of 50 us and more, each GPU from each other. Rooflines: the same rows
# (`daceml.operations.duration_chain`); between vendors, and of short kernels: Qwen1.5-0.5B on H100 and
# MI300X. The others are assumptions.
WITHIN: dict[str, tuple[float, float]] = {
    "wave scaling": (1.8, 1.8),
    "roofline": (2.3, 2.3),
    "roofline, other vendor": (2.8, 2.8),
    "rates": (2.5, 2.5),
    "rates, other vendor": (3.0, 3.0),
    "link": (1.5, 2.0),
    "none": (4.0, 4.0),
    "short": (2.8, 2.8),
}
# Below, a kernel takes what it takes to begin and to end, which no figure of a device says.
SHORT_US = 10.0


def same_device(task: DeviceTask, question: Question) -> Guess | str:
    """It ran there."""
    if question.origin != question.destination:
        return "another device"
    return _guess(task.duration_us, (1.0, 1.0), "same device", "recorded on this device")


def measured_there(task: DeviceTask, question: Question) -> Guess | str:
    """The operation itself was measured on the destination."""
    found = known_to_source(task, question)
    if isinstance(found, Guess) and found.method != "measured":
        return f"the operation was not measured on {question.destination.name}"
    return found


def known_to_source(task: DeviceTask, question: Question) -> Guess | str:
    """Whoever knows durations on the destination; kernels of one call share its time as they did here."""
    if question.source is None:
        return "no durations of operations are given"
    if task.operation is None:
        return "it is not known which operation the kernel belongs to"
    found = question.source.estimate(task.operation, question.destination)
    if found is None:
        return f"nothing is known of {task.operator} on {question.destination.name}"
    if found.basis == "roofline":
        return (
            f"of {task.operator} only the roofline is known, and here its time on {question.origin.name}, too"
        )
    return Guess(
        duration_us=found.duration_us * task.share,
        low_us=found.low_us * task.share,
        high_us=found.high_us * task.share,
        method=found.basis,
        reason=f"{found.basis} durations of {task.operator}",
        outside=found.outside,
        notes=found.notes,
    )


def wave_scaled(task: DeviceTask, question: Question) -> Guess | str:
    """The same kernel runs on both: Habitat's wave scaling."""
    if task.kind in PRODUCTS:
        return f"{task.kind} is computed by another kernel on another device"
    if not question.same_vendor or question.origin.vendor != "NVIDIA":
        return "another vendor's device runs other kernels"
    if task.launch is None:
        return "the profiler did not record how the kernel was launched"
    work, launch = task.work, task.launch
    kernel = KernelRun(
        duration_us=task.duration_us,
        blocks=launch.blocks,
        threads=launch.threads,
        registers=launch.registers,
        shared_bytes=launch.shared_bytes,
        flops=None if work is None else work.flops * task.share,
        bytes_moved=None if work is None else work.bytes_moved * task.share,
    )
    try:
        found = scale_kernel(kernel, question.origin, question.destination)
    except (DeviceError, ConfigurationError) as error:
        return error.what if not error.why else f"{error.what}: {error.why.splitlines()[0]}"
    reason = f"the same kernel on both; {found.memory_share:.0%} bound by memory"
    return _guess(found.duration_us, _within("wave scaling", task), "wave scaling", reason, notes=found.notes)


def by_roofline(task: DeviceTask, question: Question) -> Guess | str:
    """The recorded time by the ratio of what the operation takes at the rates of both devices."""
    if task.work is None:
        return "it is not known what the operation does"
    try:
        here, there = (expected(task.work, one) for one in (question.origin, question.destination))
    except DeviceError as error:
        return error.what
    ratio = _parts_us(there, task.parts) / _parts_us(here, task.parts)
    limit = "roofline" if question.same_vendor else "roofline, other vendor"
    reason = f"ratio of rooflines, limited by {there.limited_by} there"
    notes = tuple(dict.fromkeys((*here.notes, *there.notes)))
    return _guess(task.duration_us * ratio, _within(limit, task), "roofline", reason, notes=notes)


def by_rates(task: DeviceTask, question: Question) -> Guess | str:
    """Nobody knows what it does: products by the rates of arithmetic, all else by those of memory."""
    try:
        if task.kind in PRODUCTS:
            arithmetic = arithmetic_of(task.name)
            rates = [achieved_flops_per_s(one, arithmetic) for one in (question.origin, question.destination)]
            what = f"{arithmetic} products"
        else:
            rates = [memory_bytes_per_s(one) for one in (question.origin, question.destination)]
            what = "memory"
    except DeviceError as error:
        return error.what
    duration_us = above_floor(task.duration_us, rates[0].per_s / rates[1].per_s, question)
    limit = "rates" if question.same_vendor else "rates, other vendor"
    reason = f"ratio of the rates of {what}: it is not known what the operation does"
    notes = tuple(dict.fromkeys((*rates[0].notes, *rates[1].notes)))
    return _guess(duration_us, _within(limit, task), "rates", reason, notes=notes)


def host_copy(task: DeviceTask, question: Question) -> Guess | str:
    """Between host and device, by the generation of PCI Express."""
    if not re.search(HOST_COPY, task.name):
        return "it is no copy from or to the host"
    sides = [one.pcie_generation for one in (question.origin, question.destination)]
    links = [LINKS.get(f"PCIe{one.value:g}") if one is not None else None for one in sides]
    if links[0] is None or links[1] is None:
        return "the generation of PCI Express is not known of both devices"
    ratio = links[0].bytes_per_s / links[1].bytes_per_s
    duration_us = above_floor(task.duration_us, ratio, question)
    return _guess(duration_us, WITHIN["link"], "link", "ratio of PCI Express, if hosts keep up with it")


def by_link(task: DeviceTask, question: Question) -> Guess | str:
    """Communication, by what joins devices; waiting for others is part of the recorded time."""
    sides = [one.link_bytes_per_s for one in (question.origin, question.destination)]
    if sides[0] is None or sides[1] is None:
        return "what joins these devices to others is not known of both"
    duration_us = above_floor(task.duration_us, sides[0].value / sides[1].value, question)
    reason = "ratio of links; what the recorded one waited for others is scaled, too"
    return _guess(duration_us, WITHIN["link"], "link", reason)


def unchanged(task: DeviceTask, refusal: str) -> Guess:
    """Nothing is known; `refusal` is the reason of the least sure rule."""
    reason = f"as recorded, for nothing says what it takes there: {refusal}"
    return _guess(task.duration_us, WITHIN["none"], "none", reason, outside=reason)


def arithmetic_of(name: str) -> str:
    """In what a product computes, as its name says."""
    named = (("float8", FP8), ("bfloat16", r"bf16|bfloat16"), ("float16", HALF), ("tf32", TF32))
    return next((one for one, pattern in named if re.search(pattern, name, re.IGNORECASE)), "float32")


def above_floor(duration_us: float, ratio: float, question: Question) -> float:
    """What is above the smallest kernel's time is scaled, the rest by the ratio of the floors."""
    origin_us, there_us = (
        USUAL_FLOOR_US if one.floor_us is None else one.floor_us.value
        for one in (question.origin, question.destination)
    )
    floor_us = min(duration_us, origin_us)
    return floor_us * there_us / origin_us + (duration_us - floor_us) * ratio


def _within(limit: str, task: DeviceTask) -> tuple[float, float]:
    (low, high), (short_low, short_high) = WITHIN[limit], WITHIN["short"]
    if task.duration_us >= SHORT_US:
        return low, high
    return max(low, short_low), max(high, short_high)


def _parts_us(time: RooflineTime, parts: int) -> float:
    """Of a call of several kernels, each has its floor."""
    return parts * time.floor_us + max(time.compute_us, time.memory_us)


def _guess(
    duration_us: float,
    within: tuple[float, float],
    method: Method,
    reason: str,
    *,
    outside: str = "",
    notes: tuple[str, ...] = (),
) -> Guess:
    low, high = within
    return Guess(
        duration_us=duration_us, low_us=duration_us / low, high_us=duration_us * high, method=method,
        reason=reason, outside=outside, notes=notes,
    )  # fmt: skip

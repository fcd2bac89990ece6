"""Operations on devices that exist in these tests alone, with durations that follow a rule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from daceml.devices.specification import Device, Sourced
from daceml.operations.database.records import Duration, Entry, Environment, Operand, Operation


def figure(value: float) -> Sourced:
    return Sourced(value=value, source="these tests", verified=True)


def device(name: str, *, multiprocessors: int = 80, speed: float = 1.0) -> Device:
    """One of 10 TFLOP/s and 800 GB/s, or so many times as fast."""
    return Device(
        name=name,
        kind="gpu",
        vendor="NVIDIA",
        architecture="Test",
        compute_capability=80,
        multiprocessors=figure(multiprocessors),
        boost_clock_hz=figure(1.5e9 * speed),
        memory_bytes_per_s=figure(8e11 * speed),
        peak_flops_per_s={"float32": figure(1e13 * speed)},
        l2_bytes=figure(4e6),
    )


def product(m: int, n: int, k: int) -> Operation:
    operands = (Operand(shape=(m, k), dtype="float32"), Operand(shape=(k, n), dtype="float32"))
    return Operation(operator="aten::mm", operands=operands)


def products(count: int, seed: int = 0) -> list[Operation]:
    sizes = np.random.default_rng(seed).integers(16, 2048, (count, 3))
    return [product(*map(int, row)) for row in sizes]


def seconds(
    operations: list[Operation], *, speed: float = 1.0, seed: int | None = None
) -> NDArray[np.float64]:
    """20 us, and 1 s for 4e12 multiplications; a seed adds noise of 3 %."""
    flops = np.array([2.0 * o.operands[0].elements * o.operands[1].shape[1] for o in operations])
    exact = 2e-5 + flops / (8e12 * speed)
    noise = 0.0 if seed is None else np.random.default_rng(seed).normal(0, 0.03, len(exact))
    return exact * np.exp(noise)


def entry(operation: Operation, name: str, duration_s: float) -> Entry:
    return Entry(
        operation=operation,
        environment=Environment(device=name),
        duration=Duration(median_s=float(duration_s)),
        provenance="measured",
        source="these tests",
        licence="CC0-1.0",
        date="2026-11-20",
    )

"""What generated kernels will take, from what the compiler counts of them before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class CountedStep(Protocol):
    """Of a step of a compiled program, as `daceml.explain` shows it, what costs time."""

    @property
    def kind(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def unique_bytes(self) -> int: ...
    @property
    def flops(self) -> int: ...
    @property
    def special_functions(self) -> int: ...


class Rates(Protocol):
    """What the machine does in a second, as `benchmarks.ceilings` measures it."""

    @property
    def bytes_per_s(self) -> float: ...
    @property
    def exponentials_per_s(self) -> float: ...


# Operators whose time the recorded run knows.
_PRODUCTS = ("Gemm", "MatMul", "Einsum", "Conv")


def kernel_us(step: CountedStep, rates: Rates) -> float:
    """The time for all bytes once, or for all special functions, whichever is longer."""
    return max(step.unique_bytes / rates.bytes_per_s, step.special_functions / rates.exponentials_per_s) * 1e6


def between_products_us(steps: Sequence[CountedStep], rates: Rates) -> tuple[float, ...]:
    """What everything takes before the first product of a program, and after each, in order."""
    sums_us = [0.0]
    for step in steps:
        if step.kind == "aten" and step.label.startswith(_PRODUCTS):
            sums_us.append(0.0)
        else:
            sums_us[-1] += kernel_us(step, rates)
    return tuple(sums_us)

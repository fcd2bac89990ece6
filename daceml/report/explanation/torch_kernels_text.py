"""Operators that torch's own kernels run because they were measured to be faster, as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daceml.text_tables import render, table, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daceml.tuning.comparison_record import TorchKernel

HEADERS = ("operator", "where", "program ms", "torch ms")
SOURCES = (
    "program: its steps in a profile of the program without torch's kernels, gradients included; torch: its "
    "kernels, timed on the same operands; DACEML_MEASURE=0 chooses none"
)


def torch_kernels_text(kernels: Sequence[TorchKernel], headline: str) -> str:
    """The headline, a row for each operator, and where the times are from; empty where torch runs none."""
    if not kernels:
        return ""
    rows = table(*HEADERS, left=2)
    for kernel in kernels:
        rows.add_row(*row_of(kernel))
    return "\n".join([*wrapped(headline, indent=0), render(rows), *wrapped(SOURCES, indent=2)])


def row_of(kernel: TorchKernel) -> tuple[str, ...]:
    """Operator, place and milliseconds."""
    return (kernel.operator, kernel.where, f"{kernel.program_us / 1e3:.3g}", f"{kernel.torch_us / 1e3:.3g}")

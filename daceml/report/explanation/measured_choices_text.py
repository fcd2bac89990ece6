"""Operators that something else runs because it was measured to be faster, as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daceml.text_tables import render, table, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daceml.tuning.comparison_record import OtherImplementation, TorchKernel

HEADERS = ("operator", "where", "run by", "ms before", "ms")
SOURCES = (
    "before: its steps in a profile of the program without these choices; now: torch's kernels, timed on the "
    "same operands, or the operator, compiled and run alone at the same sizes; gradients count with torch's "
    "kernels; DACEML_MEASURE=0 chooses none"
)


def measured_choices_text(choices: Sequence[TorchKernel | OtherImplementation], headline: str) -> str:
    """The headline, a row for each operator, and where the times are from; empty where nothing was chosen."""
    if not choices:
        return ""
    rows = table(*HEADERS, left=3)
    for choice in choices:
        rows.add_row(*row_of(choice))
    return "\n".join([*wrapped(headline, indent=0), render(rows), *wrapped(SOURCES, indent=2)])


def row_of(choice: TorchKernel | OtherImplementation) -> tuple[str, ...]:
    """Operator, place, what runs it, and milliseconds."""
    times = (f"{us / 1e3:.3g}" for us in (choice.program_us, choice.chosen_us))
    return (choice.operator, choice.where, choice.by, *times)

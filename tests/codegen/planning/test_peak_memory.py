"""A step moves forward from the peak, with what is made for it alone, and not past what it needs."""

from __future__ import annotations

from dataclasses import dataclass

from daceml.codegen.planning.memory_usage import Usage
from daceml.codegen.planning.peak_memory import lower_peak

BYTES = {"stored": 4, "again": 4, "one": 8, "two": 8, "kept": 6}
OUTPUTS = {"one", "two"}


@dataclass(frozen=True)
class Step:
    reads: tuple[str, ...]
    writes: tuple[str, ...]


def names(*steps: Step, fixed: str = "") -> list[str]:
    usage = Usage(
        steps,
        root=lambda array: array,
        made_bytes=lambda array: BYTES.get(array, 0),
        freed_bytes=lambda array: 0 if array in OUTPUTS else BYTES.get(array, 0),
        fixed=lambda step: step.writes[0] in fixed.split(),
    )
    return [step.writes[0] for step in lower_peak(steps, usage)]


ONE, AGAIN = Step(("x",), ("one",)), Step(("stored",), ("again",))
TWO = Step(("again",), ("two",))


def test_what_frees_more_goes_first_with_what_it_needs() -> None:
    # before: one and two with what two is made of; behind: one alone
    assert names(ONE, AGAIN, TWO) == ["again", "two", "one"]
    other = Step(("x", "kept"), ("small",))
    assert names(other, ONE, AGAIN, TWO)[-1] == "one"


def test_nothing_passes_what_it_depends_on() -> None:
    assert names(Step(("x",), ("stored",)), ONE, AGAIN, TWO) == ["stored", "again", "two", "one"]
    needed = Step(("one",), ("again",))
    assert names(ONE, needed, TWO) == ["one", "again", "two"]


def test_fixed_steps_keep_their_order() -> None:
    assert names(ONE, AGAIN, TWO, fixed="one two") == ["one", "again", "two"]
    assert names(ONE, AGAIN, TWO, fixed="one") == ["again", "two", "one"]


def test_an_order_that_gains_nothing_stays() -> None:
    assert names(TWO, ONE) == ["two", "one"]
    assert names() == []

"""What a pass over a network did, and what it left alone and why; `Network.passes` collects the records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

from daceml.sdfg.sizes import size_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import dace

    from daceml.sdfg.sizes import Size

_P = ParamSpec("_P")
_R = TypeVar("_R")
Level = Literal["coarse", "operators", "local", "layout", "hardware"]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One thing that a pass left as it was.

    Attributes:
        subject: array or operator; the user's name of it where it has one.
        reason: a sentence without the subject.
        size_bytes: of the data concerned: what makes one refusal more important than another.
        where: module path and the user's line, where they are known.
    """

    subject: str
    reason: str
    size_bytes: Size = 0
    where: str = ""


def refused_arrays(sdfg: dace.SDFG, reasons: Mapping[str, str]) -> tuple[Refusal, ...]:
    """Refusals of arrays, with their sizes.

    Args:
        reasons: array -> why it stayed.
    """
    found: list[Refusal] = []
    for array, reason in reasons.items():
        amount = size_bytes(sdfg.arrays[array])
        found.append(Refusal(subject=array, reason=reason, size_bytes=amount))
    return tuple(found)


@dataclass(frozen=True, kw_only=True)
class PassRecord:
    """One pass.

    Attributes:
        level: the stage of compilation that the pass belongs to.
        name: of the pass, as `explain` shows it.
        applied: what was done -> how often.
        refused: what was not done.
        figures: amounts of the network before the pass that nothing else keeps, by name; `steps` (operators
            or kernels) and `unique_bytes` are compared between levels.
        places: of a pass `by_place`, the arrays where it applied: those that disappeared, or those that
            rewritten operators gave.
        by: name of the recipe's step; "" where the pass did not run as one.
    """

    level: Level
    name: str
    applied: dict[str, int] = field(default_factory=dict[str, int])
    refused: tuple[Refusal, ...] = ()
    figures: dict[str, Size] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]
    places: tuple[str, ...] = ()
    by: str = ""


ELSEWHERE = "the recipe lets this pass work at other places only"
"""Why a pass that is told its places leaves another one as it is."""


def by_place(run: Callable[_P, _R]) -> Callable[_P, _R]:
    """Marks a pass that asks `Network.may_change` about every array before it changes what makes it."""
    run.by_place = True  # pyright: ignore[reportFunctionMemberAccess]
    return run

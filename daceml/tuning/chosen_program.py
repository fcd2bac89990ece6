"""A program next to eager PyTorch: compared again, where others disturbed, and at other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from daceml.frontend.capture.call_device import without_autocast
from daceml.tuning.comparison_record import EagerComparison, remember, stored_comparison
from daceml.tuning.eager_comparison import compared_with_eager

if TYPE_CHECKING:
    from daceml.compiler.program_builder import Making
    from daceml.runtime.autograd import BackwardPass
    from daceml.runtime.program import Program


@dataclass(frozen=True, kw_only=True)
class ChosenProgram:
    """A program, how it is made, and how fast eager PyTorch is next to it, where that is known."""

    making: Making
    program: Program
    backward: BackwardPass | None
    eager: EagerComparison | None = None


def compared(
    chosen: ChosenProgram, state: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor], limit_s: float
) -> EagerComparison | None:
    """A comparison of a chosen program with eager PyTorch; see `compared_with_eager`."""
    return compared_with_eager(
        chosen.making.exported, chosen.program, chosen.backward, state, inputs, limit_s=limit_s
    )


def compare_again(
    chosen: ChosenProgram,
    plain: Making,
    state: Mapping[str, torch.Tensor],
    inputs: Sequence[torch.Tensor],
) -> ChosenProgram:
    """Compare a program with eager PyTorch once more, since others disturbed when an earlier process did.

    Args:
        chosen: out of the cache, with what that process has seen.
        plain: how it is made without any choice.
        state, inputs: see `choose_program`.
    """
    known = chosen.eager
    assert known is not None, "what an earlier process has seen"
    found = compared(chosen, state, inputs, known.limit_s)
    if found is None:
        return chosen
    seen = found if found.rounds else known
    eager = replace(
        seen,
        tries=known.tries + 1,
        kernels=known.kernels,
        implementations=known.implementations,
        without_ms=known.without_ms,
    )
    remember(plain, inputs, eager)
    return replace(chosen, eager=eager)


def comparison_elsewhere(
    chosen: ChosenProgram, plain: Making, state: Mapping[str, torch.Tensor], inputs: Sequence[torch.Tensor]
) -> EagerComparison | None:
    """A comparison with eager PyTorch at other sizes than those at which the program was compiled.

    Args:
        chosen: with what was seen at those; its sizes are symbolic.
        plain, state, inputs: see `compare_again`.
    """
    first = chosen.eager
    assert first is not None, "what was seen at other sizes"
    known = stored_comparison(plain, inputs)
    if known is not None and known.choices == first.choices and not known.is_doubtful:
        return known
    with without_autocast(), torch.no_grad():
        found = compared(chosen, state, inputs, first.limit_s)
    if found is None:
        return None
    tries = 1 if known is None else known.tries + 1
    found = replace(
        found,
        tries=tries,
        kernels=first.kernels,
        implementations=first.implementations,
        without_ms=first.without_ms,
    )
    remember(plain, inputs, found)
    return found

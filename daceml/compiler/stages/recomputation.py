"""The options that say what a training step stores, and what it computes again."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal, get_args

from daceml.errors import ConfigurationError

Recompute = Literal["none", "cheap", "budget"]


@dataclass(frozen=True, kw_only=True)
class Recomputation:
    """What is computed again in the backward pass.

    Attributes:
        mode: "none", "cheap" or "budget"; see `daceml.autodiff.checkpointing.recompute`.
        budget_bytes: of a training step at its peak, for "budget".
    """

    mode: Recompute = "none"
    budget_bytes: int | None = None


def check_recomputation(mode: object, budget_bytes: object) -> None:
    """Refuse values that mean nothing.

    Raises:
        ConfigurationError: another word, a budget that is no positive number, or one without the other.
    """
    if mode not in get_args(Recompute):
        close = difflib.get_close_matches(str(mode), get_args(Recompute), n=1)
        meaning = "'cheap' computes again what costs nothing; 'budget' keeps memory_budget_bytes"
        raise ConfigurationError(
            "option 'recompute' must be 'none', 'cheap' or 'budget'",
            why=f"it is {mode!r}",
            fix=f"did you mean {close[0]!r}? {meaning}" if close else meaning,
        )
    if budget_bytes is not None and (
        isinstance(budget_bytes, bool) or not isinstance(budget_bytes, int) or budget_bytes <= 0
    ):
        raise ConfigurationError(
            "option 'memory_budget_bytes' must be a positive whole number",
            why=f"it is {budget_bytes!r}",
            fix="give bytes, for example 2 * 2**30",
        )
    if (mode == "budget") != (budget_bytes is not None):
        raise ConfigurationError(
            "recompute='budget' and memory_budget_bytes belong together",
            why=f"recompute is {mode!r}, memory_budget_bytes is {budget_bytes!r}",
            fix="give both or neither",
        )

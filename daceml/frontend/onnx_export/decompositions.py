"""Calls that torch's own translations get wrong or refuse, and that its decompositions get right.

A row says for which calls of an operator; the whole operator is decomposed then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch._ops import OpOverload

if TYPE_CHECKING:
    import torch


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    """Arguments by name, with the schema's defaults."""
    assert isinstance(node.target, OpOverload)
    given = dict(node.kwargs)
    for position, argument in enumerate(node.target._schema.arguments):  # pyright: ignore[reportPrivateUsage]
        if position < len(node.args):
            given[argument.name] = node.args[position]
        elif argument.has_default_value():
            given.setdefault(argument.name, argument.default_value)
    return given


def _dtype(argument: Any) -> torch.dtype:
    return argument.meta["val"].dtype


def _smoothed_or_probabilities(node: torch.fx.Node) -> bool:
    given = _arguments(node)
    value = given["self"].meta["val"]
    # ONNX's operator has a batch, classes as targets, and no smoothing
    return given["label_smoothing"] != 0 or _dtype(given["target"]).is_floating_point or value.dim() < 2


ROWS: dict[str, Callable[[torch.fx.Node], bool]] = {
    "aten.cross_entropy_loss.default": _smoothed_or_probabilities,
}

SOMETIMES = frozenset(ROWS)
"""Operators with a row: one call may need it, and another not."""


def is_decomposed(node: torch.fx.Node) -> bool:
    """Whether a call is one of those above."""
    row = ROWS.get(str(node.target))
    return row is not None and row(node)

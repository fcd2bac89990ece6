"""-0.0 among the numbers of a graph: torch's exporter keeps one constant for all numbers that are equal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from torch.fx.node import map_aggregate

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


class NegativeZero(float):
    """-0.0, which equals no other number."""

    def __new__(cls) -> Self:
        return super().__new__(cls, -0.0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NegativeZero)

    def __ne__(self, other: object) -> bool:  # float defines it, too
        return not self == other

    def __hash__(self) -> int:
        return hash(NegativeZero)


def separate_negative_zeros(program: ExportedProgram) -> torch.fx.Node | None:
    """Put `NegativeZero` for every -0.0 that an operator of the graph is given; mutates the graph.

    Returns: the first operator that is given one.
    """
    found: list[torch.fx.Node] = []
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue

        def separated(value: Any, node: torch.fx.Node = node) -> Any:
            if not _is_negative_zero(value):
                return value
            found.append(node)
            return NegativeZero()

        node.args = map_aggregate(node.args, separated)
        node.kwargs = map_aggregate(node.kwargs, separated)
    return found[0] if found else None


def _is_negative_zero(value: Any) -> bool:
    return isinstance(value, float) and value == 0.0 and math.copysign(1.0, value) < 0

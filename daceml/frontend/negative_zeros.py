"""-0.0 among the numbers of a graph: torch's exporter keeps one constant for all numbers that are equal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
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


def separate_negative_zeros(program: ExportedProgram) -> None:
    """Put `NegativeZero` for every -0.0 that an operator of the graph is given; mutates the graph."""
    from torch.fx.node import map_aggregate

    def separated(value: Any) -> Any:
        return NegativeZero() if _is_negative_zero(value) else value

    for node in program.graph.nodes:
        if node.op == "call_function":
            node.args = map_aggregate(node.args, separated)
            node.kwargs = map_aggregate(node.kwargs, separated)


def _is_negative_zero(value: Any) -> bool:
    return isinstance(value, float) and value == 0.0 and math.copysign(1.0, value) < 0

"""Which arrays an ONNX node reads and writes, by formal parameter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import dace

    from daceml.onnx_ops.schema.node import ONNXNode
    from daceml.onnx_ops.schema.schema import Formal

# An array name; a tuple of them for a variadic formal; None for an absent optional. Gradients of a variadic
# formal may be wanted of some actuals only: the others are None in the tuple.
Operand = str | tuple[str | None, ...] | None


@dataclass(frozen=True, kw_only=True)
class Operands:
    """The operands of one node.

    Attributes:
        inputs: formal (its connector name, without index for a variadic one) -> array name(s).
        outputs: the same for results.
        in_edges: input connector -> edge.
        out_edges: output connector -> edge.
    """

    inputs: dict[str, Operand]
    outputs: dict[str, Operand]
    in_edges: dict[str, Any]
    out_edges: dict[str, Any]

    def read_arrays(self) -> tuple[str, ...]:
        """Arrays read, in the order of the schema; one that is read twice comes twice."""
        return tuple(_flat(self.inputs))

    def written_arrays(self) -> tuple[str, ...]:
        """Arrays written, in the order of the schema."""
        return tuple(_flat(self.outputs))


def operands(node: ONNXNode, state: dace.SDFGState, sdfg: dace.SDFG) -> Operands:
    """Read the operands of a node off its edges; the actuals of a variadic formal are ordered by index.

    Of several edges at one output connector, the first counts.
    """
    in_edges = {edge.dst_conn: edge for edge in reversed(state.in_edges(node)) if edge.dst_conn}
    out_edges = {edge.src_conn: edge for edge in reversed(state.out_edges(node)) if edge.src_conn}
    return Operands(
        inputs={f.connector: _operand(f, in_edges) for f in node.schema.inputs},
        outputs={f.connector: _operand(f, out_edges) for f in node.schema.outputs},
        in_edges=in_edges,
        out_edges=out_edges,
    )


def _operand(formal: Formal, edges: dict[str, Any]) -> Operand:
    if formal.option != "variadic":
        return edges[formal.connector].data.data if formal.connector in edges else None
    prefix = formal.connector + "__"
    count = max((int(name[len(prefix) :]) + 1 for name in edges if name.startswith(prefix)), default=0)
    found = (edges.get(f"{prefix}{index}") for index in range(count))
    return tuple(None if edge is None else edge.data.data for edge in found)


def _flat(sides: dict[str, Operand]) -> Iterator[str]:
    for operand in sides.values():
        if isinstance(operand, tuple):
            yield from (actual for actual in operand if actual is not None)
        elif operand is not None:
            yield operand

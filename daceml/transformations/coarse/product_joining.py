"""join_products: products of one input with several weights that do not change any more become one.

Gemm(X, A, a), Gemm(X, B, b)   ->   Split(Gemm(X, A and B, a and b))      queries, keys and values; gates

Weights and biases are put side by side once, when a program is bound. On one thread three products of 32
rows, 64 to 64, take with what reads them 0.86 of the time, of 128 rows 0.90 and, 768 to 768, 0.97, where
loops read the parts: the loops take them out of the whole. Calls and views get copies: an attention of 32
rows of 64 takes 0.91 with its projections, of 128 rows 0.98, and from 128 rows of 256 on more than before.
Source: Rausch et al., DaCeML, ICS '22 (HorizontalEinsumFusion).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import dace

from daceml.onnx_ops.schema.element_types import BY_DACE_TYPE
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.access import add_access
from daceml.sdfg.network import Network, Preparation
from daceml.sdfg.passes import PassRecord, Refusal
from daceml.sdfg.sizes import Size, product
from daceml.transformations.coarse.matmul_scaling import CALLS, VIEWS
from daceml.transformations.rewriting.pattern import OperatorGraph
from daceml.transformations.rewriting.refusals import refused_result
from daceml.transformations.rewriting.replacement import ReplacementOps, Value, remove_unread, take_place

NAME = "join_products"
# Elements of all parts together, where copies of them are made
_MOST_COPIED = 32_768
_PLAIN = {"transA": 0, "transB": 1, "alpha": 1.0, "beta": 1.0}


def join_products(network: Network) -> int:
    """Let one product take the place of several. Mutates the network, which is not lowered yet.

    Returns:
        how many products that saves.
    """
    joining = _Joining(network)
    joining.run()
    network.sdfg.reset_cfg_list()
    applied = {"products": joining.saved} if joining.saved else {}
    network.passes.append(
        PassRecord(level="coarse", name=NAME, applied=applied, refused=tuple(joining.refused))
    )
    return joining.saved


@dataclass(frozen=True, kw_only=True)
class _Member:
    """One product.

    Attributes:
        end: what is read of it: its result, or that result under another shape with the same columns.
        view: the operator that gives that shape.
    """

    node: ONNXNode
    weight: Value
    bias: Value | None
    end: Value
    view: ONNXNode | None

    @property
    def columns(self) -> int:
        return int(self.weight.shape[0])  # pyright: ignore[reportArgumentType]


@dataclass
class _Joining:
    """One way through a network."""

    network: Network
    saved: int = 0
    refused: list[Refusal] = field(default_factory=list[Refusal])

    def __post_init__(self) -> None:
        self.graph = OperatorGraph(self.network)

    def run(self) -> None:
        """Every group."""
        groups: dict[tuple[str, str, bool], list[ONNXNode]] = {}
        for node in self.graph.by_type.get(("", "Gemm"), ()):
            first, _, *bias = self.graph.operands(node)
            groups.setdefault((*self._rows(str(first)), bool(bias)), []).append(node)
        for nodes in groups.values():
            if len(nodes) > 1:
                members = [m for m in map(self._member, nodes) if m is not None]
                if len(members) > 1:
                    self._visit(members)

    def _rows(self, array: str) -> tuple[str, str]:
        """Whose elements an operand has, and its shape: equal views have different names."""
        writer = self.graph.writer.get(array)
        source = str(self.graph.operands(writer)[0]) if writer and writer.op_type == "Reshape" else array
        return source, str(Value(array, self.graph).shape)

    def _member(self, node: ONNXNode) -> _Member | None:
        """What a product is, unless it stays."""
        _, weight, *rest = (Value(str(a), self.graph) for a in self.graph.operands(node))
        bias = rest[0] if rest else None
        (result,) = (Value(str(a), self.graph) for a in self.graph.results(node))
        values = node.attribute_values()
        reason = None
        if node.implementation or any(values.get(name) != number for name, number in _PLAIN.items()):
            reason = "only X W^T + c is joined with others"
        elif not self._is_frozen(weight) or (bias is not None and not self._is_frozen(bias)):
            reason = "its weight or its addend is not a parameter"
        elif bias is not None and bias.shape != weight.shape[:1]:
            reason = "its addend is not a vector with one element per column"
        elif self.graph.is_result(result.array):
            reason = "it is a result of the network, which would be a copy"
        if reason is not None:
            self.refused.append(refused_result(node, reason, self.graph))
            return None
        view = self._view(result)
        end = result if view is None else Value(str(self.graph.results(view)[0]), self.graph)
        return _Member(node=node, weight=weight, bias=bias, end=end, view=view)

    def _is_frozen(self, value: Value) -> bool:
        made, changed = self.network.prepared.get(value.array), self.network.mutations.values()
        known = value.weight is not None or (made is not None and not made.packed)
        return known and value.array not in changed

    def _view(self, result: Value) -> ONNXNode | None:
        """The only reader, where it gives rows another shape."""
        readers = self.graph.readers(result.array)
        reader = readers[0] if len(readers) == 1 else None
        if not isinstance(reader, ONNXNode) or reader.op_type != "Reshape" or reader.implementation:
            return None
        (shaped,) = (Value(str(a), self.graph) for a in self.graph.results(reader))
        same = bool(shaped.shape) and shaped.shape[-1] == result.shape[-1]
        known = same and all(isinstance(n, int) for n in shaped.shape)
        return reader if known and not self.graph.is_result(shaped.array) else None

    def _visit(self, members: list[_Member]) -> None:
        if len({(m.weight.dtype, m.end.dtype) for m in members}) > 1:
            return
        if any(m.view is None for m in members) or len({m.end.shape[:-1] for m in members}) > 1:
            members = [self._unshaped(m) for m in members]
        copied: Size = sum((product(m.end.shape) for m in members if not self._loops_read(m.end)), start=0)
        if not isinstance(copied, int) or copied > _MOST_COPIED:
            reason = f"calls or views read its parts, and {copied} elements take longer to copy than it saves"
            self.refused += [refused_result(m.node, reason, self.graph) for m in members]
            return
        self._join(members)
        self.saved += len(members) - 1

    def _loops_read(self, value: Value) -> bool:
        """Whether loops alone read it as it is, which take it out of the whole."""
        readers = self.graph.readers(value.array)
        return all(isinstance(r, ONNXNode) and r.op_type not in CALLS | VIEWS for r in readers)

    def _unshaped(self, member: _Member) -> _Member:
        (result,) = (Value(str(a), self.graph) for a in self.graph.results(member.node))
        return _Member(node=member.node, weight=member.weight, bias=member.bias, end=result, view=None)

    def _join(self, members: list[_Member]) -> None:
        graph, first = self.graph, members[0]
        op = ReplacementOps(graph, first.node, NAME)
        columns = [m.columns for m in members]
        inner = int(first.weight.shape[1])  # pyright: ignore[reportArgumentType]
        weight = self._side_by_side([m.weight for m in members], (sum(columns), inner))
        biases = [m.bias for m in members if m.bias is not None]
        bias = self._side_by_side(biases, (sum(columns),)) if biases else None
        rows = Value(str(graph.operands(first.node)[0]), graph)
        whole = op.Gemm(rows, weight, bias, transB=1, shape=(rows.shape[0], sum(columns)))
        if first.view is not None:
            whole = op.Reshape(whole, [*first.end.shape[:-1], sum(columns)])
        parts = op.Split(whole, columns, axis=first.end.rank - 1, results=len(members))
        for member, part in zip(members, parts, strict=True):
            take_place(graph, member.end.array, part.array)
        gone = [n for m in members for n in (m.view, m.node) if n is not None]
        remove_unread(graph, gone)

    def _side_by_side(self, values: list[Value], shape: tuple[int, ...]) -> Value:
        network, first = self.network, values[0]
        made = Preparation(
            function="Concat",
            sources=tuple(v.array for v in values),
            numbers=((BY_DACE_TYPE[first.dtype].onnx_code,), shape, (0,)),
            packed=False,
        )
        name = network.prepare(made, f"{first.array}_joined", dace.data.Array(first.dtype, shape))
        if name not in self.graph.access:
            self.graph.access[name] = add_access(network.state, name)
        return Value(name, self.graph)

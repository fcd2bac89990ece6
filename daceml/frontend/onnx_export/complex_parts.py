"""Complex numbers as pairs of real ones, where all of a computation can be written so.

Mutates the program that it is given. ONNX has no complex numbers: an operator on them is a call of torch's
kernel, in which nothing is fused. Rotary embeddings by `view_as_complex` are such computations. A transform
or a decomposition is not; a value passes between it and a pair through `view_as_real` and `view_as_complex`,
so a computation is rewritten only if that takes fewer calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

from daceml.frontend.onnx_export.functionalize import rename_outputs

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Graph, Node

_aten = torch.ops.aten
Part = Any
"""A node of real numbers, or a number; 0.0 is the imaginary part of what is real."""
Pair = tuple[Part, Part]


def write_complex_as_pairs(program: ExportedProgram) -> None:
    """Rewrite the computations with complex numbers that take fewer calls of torch's kernels as pairs."""
    chosen = [node for group in _groups(program.graph) if _gains(group) for node in group]
    if not chosen:
        return
    pairs = _Pairs(program.graph, frozenset(chosen))
    for node in (n for n in list(program.graph.nodes) if n in pairs.chosen):
        pairs.rewrite(node)
    for node in reversed([n for n in list(program.graph.nodes) if n in pairs.chosen]):
        program.graph.erase_node(node)
    rename_outputs(program)


def _is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


def _complex_operands(node: Node) -> list[Node]:
    return [operand for operand in node.all_input_nodes if _is_complex(operand.meta.get("val"))]


def _groups(graph: Graph) -> Iterator[list[Node]]:
    """Nodes with a rule that are connected by complex values."""
    group: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if _rule(node) is None:
            continue
        merged = [node]
        for other in {id(g): g for o in _complex_operands(node) if (g := group.get(o)) is not None}.values():
            merged += other
        # nodes that read one value from outside are one group, too: it is taken apart once
        for sibling in (user for operand in _complex_operands(node) for user in operand.users):
            if (other := group.get(sibling)) is not None and sibling not in merged:
                merged += other
        for member in merged:
            group[member] = merged
    yield from {id(g): g for g in group.values()}.values()


def _gains(group: Sequence[Node]) -> bool:
    inside = frozenset(group)
    entering = {o for node in group for o in _complex_operands(node) if o not in inside}
    leaving = [n for n in group if _is_complex(n.meta["val"]) and not inside.issuperset(n.users)]
    return len(entering) + len(leaving) < len(group)


@dataclass
class _Pairs:
    """The values of a graph that are pairs.

    Attributes:
        chosen: the nodes that are rewritten.
    """

    graph: Graph
    chosen: frozenset[Node]
    known: dict[Node, Pair] = field(default_factory=dict["Node", Pair])

    def rewrite(self, node: Node) -> None:
        """Replace the value of a node by a pair, or by real numbers where it is real."""
        rule = _rule(node)
        assert rule is not None, "only nodes with a rule are chosen"
        outside = [operand for operand in _complex_operands(node) if operand not in self.known]
        for operand in outside:
            with self.graph.inserting_before(_behind(operand)):
                self.known[operand] = _from_real(self, _made(_aten.view_as_real.default, operand))
        with self.graph.inserting_before(node):
            made = rule(self, *node.args, **node.kwargs)
            if not isinstance(made, tuple):
                node.replace_all_uses_with(made)
                return
            self.known[node] = made
            if not self.chosen.issuperset(node.users):
                whole = _made(_aten.view_as_complex.default, _made(_aten.stack.default, list(made), -1))
                node.replace_all_uses_with(whole, delete_user_cb=lambda user: user not in self.chosen)

    def of(self, operand: Any) -> Pair:
        """The parts of an operand."""
        if isinstance(operand, complex):
            return operand.real, operand.imag
        return self.known.get(operand, (operand, 0.0)) if _is_node(operand) else (operand, 0.0)


def _behind(node: Node) -> Node:
    """The node that follows, behind all placeholders."""
    following = node.next
    while following.op == "placeholder":
        following = following.next
    return following


def _made(target: Any, *args: Any, **kwargs: Any) -> Node:
    """A call with the value and the source that its operands have."""
    flat = [x for a in (*args, *kwargs.values()) for x in (a if isinstance(a, list) else [a])]
    first = next(x for x in flat if _is_node(x))
    node = first.graph.call_function(target, args, kwargs)
    value = target(*torch.fx.map_arg(args, _value), **torch.fx.map_arg(kwargs, _value))
    node.meta = {**first.meta, "val": value}
    return node


def _value(node: Any) -> Any:
    return node.meta["val"]


def _is_node(part: Part) -> bool:
    return hasattr(part, "meta")


def _add(a: Part, b: Part) -> Part:
    if not _is_node(a):
        a, b = b, a
    return _made(_aten.add.Tensor, a, b) if _is_node(a) else a + b


def _mul(a: Part, b: Part) -> Part:
    if not _is_node(a):
        a, b = b, a
    return _made(_aten.mul.Tensor, a, b) if _is_node(a) else a * b


def _sub(a: Part, b: Part) -> Part:
    if _is_node(a):
        return _made(_aten.sub.Tensor, a, b)
    return _add(_made(_aten.neg.default, b), a) if _is_node(b) else a - b


def _product(pairs: _Pairs, self: Any, other: Any) -> Pair:
    (a, b), (c, d) = pairs.of(self), pairs.of(other)
    return _sub(_mul(a, c), _mul(b, d)), _add(_mul(a, d), _mul(b, c))


def _sum(pairs: _Pairs, self: Any, other: Any) -> Pair:
    (a, b), (c, d) = pairs.of(self), pairs.of(other)
    return _add(a, c), _add(b, d)


def _difference(pairs: _Pairs, self: Any, other: Any) -> Pair:
    (a, b), (c, d) = pairs.of(self), pairs.of(other)
    return _sub(a, c), _sub(b, d)


def _negative(pairs: _Pairs, self: Any) -> Pair:
    a, b = pairs.of(self)
    return _made(_aten.neg.default, a), _made(_aten.neg.default, b)


def _conjugate(pairs: _Pairs, self: Any) -> Pair:
    a, b = pairs.of(self)
    return a, _made(_aten.neg.default, b)


def _from_real(pairs: _Pairs, self: Any) -> Pair:
    return _made(_aten.select.int, self, -1, 0), _made(_aten.select.int, self, -1, 1)


def _to_real(pairs: _Pairs, self: Any) -> Part:
    return _made(_aten.stack.default, list(pairs.of(self)), -1)


def _polar(pairs: _Pairs, abs: Any, angle: Any) -> Pair:
    return (
        _mul(abs, _made(_aten.cos.default, angle)),
        _mul(abs, _made(_aten.sin.default, angle)),
    )


def _moves(node: Any) -> Callable[..., Pair]:
    """The rule of an operator that moves elements, or adds them up: it does so with each part."""

    def rule(pairs: _Pairs, first: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(first, list | tuple):
            parts = list(zip(*map(pairs.of, first), strict=True))
            return tuple(_made(node.target, list(part), *args, **kwargs) for part in parts)
        return tuple(_made(node.target, part, *args, **kwargs) for part in pairs.of(first))

    return rule


_ARITHMETIC: dict[Any, Callable[..., Any]] = {
    _aten.mul.Tensor: _product,
    _aten.mul.Scalar: _product,
    _aten.add.Tensor: _sum,
    _aten.sub.Tensor: _difference,
    _aten.neg.default: _negative,
    _aten._conj.default: _conjugate,
    _aten._conj_physical.default: _conjugate,
    _aten.conj.default: _conjugate,
    _aten.conj_physical.default: _conjugate,
    _aten.view_as_complex.default: _from_real,
    _aten.view_as_real.default: _to_real,
    _aten.complex.default: lambda pairs, real, imag: (real, imag),
    _aten.polar.default: _polar,
    _aten.real.default: lambda pairs, self: pairs.of(self)[0],
    _aten.imag.default: lambda pairs, self: pairs.of(self)[1],
}

_MOVING = frozenset(
    {
        *("view", "reshape", "_unsafe_view", "flatten", "unflatten", "permute", "transpose", "t", "movedim"),
        *("unsqueeze", "squeeze", "expand", "slice", "select", "narrow", "index_select", "clone"),
        *("contiguous", "cat", "stack", "roll", "flip", "repeat", "sum", "mean"),
    }
)


def _rule(node: Node) -> Callable[..., Any] | None:
    """What writes a node with pairs; None where nothing does, or where no complex number is involved."""
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return None
    value = node.meta.get("val")
    values = [value, *(operand.meta.get("val") for operand in node.all_input_nodes)]
    if not any(map(_is_complex, values)) or not isinstance(value, torch.Tensor):
        return None
    if any(isinstance(v, torch.Tensor) and v.dtype == torch.complex32 for v in values):
        return None
    if node.target in _ARITHMETIC:
        return None if node.kwargs or not _fills(node) else _ARITHMETIC[node.target]
    moves = node.target.namespace == "aten" and node.target.overloadpacket.__name__ in _MOVING
    first: Any = node.args[0]
    operands: Sequence[Any] = first if isinstance(first, list | tuple) else [first]
    plain = node.kwargs.get("dtype") is None and all(
        _is_node(operand) and _is_complex(_value(operand)) for operand in operands
    )
    return _moves(node) if moves and plain else None


def _fills(node: Any) -> bool:
    """Whether both parts of an arithmetic result have its type and sizes without being broadcast or cast."""
    if len(node.args) == 1 or node.target in (_aten.mul.Tensor, _aten.mul.Scalar):
        return True
    tensors = [_value(operand) for operand in node.all_input_nodes]
    shape, dtype = node.meta["val"].shape, node.meta["val"].dtype.to_real()
    alike = all(t.shape == shape and t.dtype in (dtype, dtype.to_complex()) for t in tensors)
    return alike and (len(tensors) == 2 or node.target in (_aten.add.Tensor, _aten.sub.Tensor))

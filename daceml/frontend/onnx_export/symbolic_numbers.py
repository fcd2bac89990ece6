"""Sizes used as numbers, and numbers of tensors: `x / math.sqrt(n)`, `torch.full((n,), scale.item())`.

Mutates the program that it is given. torch passes a symbolic integer or fraction where an operator takes a
number; ONNX wants a tensor of the type that is computed in. So each becomes a tensor without dimensions:
whole numbers are exact, fractions are float64 as Python's are.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

from daceml.errors import ExportError
from daceml.frontend.capture.number_uses import depends_on_read, reads_a_number
from daceml.frontend.capture.provenance import source_of_node
from daceml.frontend.onnx_export.functionalize import rename_outputs
from daceml.frontend.onnx_export.translations import table

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Graph, Node

_OPERATORS = {
    operator.add: "add.Tensor",
    operator.sub: "sub.Tensor",
    operator.mul: "mul.Tensor",
    operator.truediv: "div.Tensor",
    operator.floordiv: "floor_divide.default",
    operator.mod: "remainder.Tensor",
    operator.pow: "pow.Tensor_Tensor",
    operator.neg: "neg.default",
    operator.abs: "abs.default",
    math.trunc: "trunc.default",
    math.floor: "floor.default",
    math.ceil: "ceil.default",
    round: "round.default",
}
"""What computes with fractions of Python -> the ATen operator that does so with tensors."""

_NAMED = {
    "sym_float": "alias.default",
    "sym_int": "trunc.default",
    "sym_max": "maximum.default",
    "sym_min": "minimum.default",
    **{f"_sym_{name}": f"{name}.default" for name in ("sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{f"_sym_{name}": f"{name}.default" for name in ("asin", "acos", "atan", "log2", "exp", "log")},
}

_PLAIN = frozenset({"arange", "sym_size", "sym_numel", "scalar_tensor"})
"""Operators that take whole symbolic numbers as they are."""

_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_WIDENED = frozenset({"mul", "div"})
"""Operators that take a number in float32 beside a half tensor."""


def numbers_as_tensors(program: ExportedProgram) -> None:
    """Make a tensor of each symbolic number that an operator computes with."""
    tensors = _Tensors(program.graph)
    for node in list(program.graph.nodes):
        if node.op != "call_function":
            continue
        if isinstance(node.target, OpOverload) and node.target.namespace == "aten":
            _replace_operands(node, tensors)
        elif _is_size(node) and any(_is_fraction(operand) for operand in node.all_input_nodes):
            _through_tensors(node, tensors)
    for node in reversed(list(program.graph.nodes)):
        if node.op == "call_function" and _is_number(node) and not node.users:
            program.graph.erase_node(node)
    rename_outputs(program)


def _replace_operands(node: Node, tensors: _Tensors) -> None:
    value, overload = node.meta.get("val"), node.target
    name = overload.overloadpacket.__name__  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
    formals = overload._schema.arguments  # pyright: ignore[reportFunctionMemberAccess, reportAttributeAccessIssue]
    places: dict[int | str, Node] = {}
    for position, formal in enumerate(formals):
        place = position if position < len(node.args) else formal.name
        actual = node.args[position] if position < len(node.args) else node.kwargs.get(formal.name)
        if _is_number(actual) and _takes_numbers(formal.type):
            places[place] = actual  # pyright: ignore[reportArgumentType]
    if name in _PLAIN:
        places = {place: actual for place, actual in places.items() if _is_fraction(actual)}
    if not places or not isinstance(value, torch.Tensor):
        return
    wanted: torch.dtype = value.dtype
    if name in _COMPARISONS:
        wanted = torch.result_type(*(argument_value(argument) for argument in node.args[:2]))
    if wanted in (torch.float16, torch.bfloat16) and name in _WIDENED:
        wanted = torch.float32
        _widen(node, tensors)
    for place, actual in places.items():
        _set(node, place, tensors.typed(actual, wanted))
    _use_tensor_overload(node, places, wanted, tensors)


def _takes_numbers(kind: Any) -> bool:
    text = str(kind)
    return any(word in text for word in ("Tensor", "number", "Scalar", "float"))


def _widen(node: Node, tensors: _Tensors) -> None:
    """Compute in float32 and round the result once."""
    value = node.meta["val"]
    for position, argument in enumerate(node.args):
        if _is_tensor(argument):
            node.update_arg(position, tensors.cast(argument, torch.float32, before=node))
    node.meta = dict(node.meta, val=value.to(torch.float32))
    with node.graph.inserting_after(node):
        rounded = node.graph.call_function(torch.ops.aten._to_copy.default, (node,), {"dtype": value.dtype})
    rounded.meta = dict(node.meta, val=value)
    node.replace_all_uses_with(rounded, delete_user_cb=lambda user: user is not rounded)


def _use_tensor_overload(
    node: Node, places: dict[int | str, Node], wanted: torch.dtype, tensors: _Tensors
) -> None:
    """`aten.pow.Tensor_Scalar` with a tensor in the place of the number is `aten.pow.Tensor_Tensor`."""
    overload: Any = node.target
    formals = overload._schema.arguments
    packet = overload.overloadpacket
    replaced = {formals[p].name if isinstance(p, int) else p for p in places}
    if not any("Tensor" not in str(formal.type) for formal in formals if formal.name in replaced):
        return
    for name in packet.overloads():
        other = getattr(packet, name)._schema.arguments
        if [o.name for o in other] != [f.name for f in formals]:
            continue
        takes_tensors = all("Tensor" in str(o.type) for o in other if o.name in replaced)
        if takes_tensors and str(getattr(packet, name)) in table():
            for position, formal in enumerate(other):
                actual = node.args[position] if position < len(node.args) else None
                if "Tensor" in str(formal.type) and isinstance(actual, int | float):
                    node.update_arg(position, tensors.constant(actual, wanted, before=node))
            node.target = getattr(packet, name)
            return


def _through_tensors(node: Node, tensors: _Tensors) -> None:
    """A size that comes from a fraction, as in `int(n * 0.5)`, is computed in float64."""
    computed = tensors.of(node)
    with node.graph.inserting_before(node):
        size = node.graph.call_function(torch.ops.aten._to_copy.default, (computed,), {"dtype": torch.int64})
    size.meta = dict(node.meta)
    node.replace_all_uses_with(size)


class _Tensors:
    """Tensors without dimensions that hold symbolic numbers; each is made once, beside its number."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._made: dict[tuple[Node, torch.dtype], Node] = {}
        self._mode: Any = next(
            (m for n in graph.nodes if (m := getattr(n.meta.get("val"), "fake_mode", None)) is not None), None
        )

    def typed(self, number: Node, dtype: torch.dtype) -> Node:
        """A number in an element type."""
        if (number, dtype) not in self._made:
            if reads_a_number(number):
                made = self.cast(self._read(number), dtype, after=number)
            elif not _is_fraction(number) and depends_on_read(number):
                computed = self._computed(number, torch.int64)
                made = computed if dtype == torch.int64 else self.cast(computed, dtype, after=computed)
            elif _is_fraction(number):
                computed = self.of(number)
                made = computed if dtype == torch.float64 else self.cast(computed, dtype, after=computed)
            else:
                with self._graph.inserting_after(number):
                    made = self._call("scalar_tensor.default", number, like=number, dtype=dtype)
            self._made[number, dtype] = made
        return self._made[number, dtype]

    def of(self, number: Node) -> Node:
        """A number in float64, computed from float64."""
        if not _is_fraction(number) and not any(map(_is_fraction, number.all_input_nodes)):
            return self.typed(number, torch.float64)
        if reads_a_number(number):
            return self.typed(number, torch.float64)
        return self._computed(number, torch.float64)

    def _computed(self, number: Node, dtype: torch.dtype) -> Node:
        """A number that is computed from others, in float64 or int64."""
        if (number, dtype) not in self._made:
            given: Any = [a for a in number.args if a is not None]  # round(number, None)
            of = self.of if dtype == torch.float64 else lambda operand: self.typed(operand, dtype)
            operands = [of(a) if _is_number(a) else self.constant(a, dtype, before=number) for a in given]
            with self._graph.inserting_before(number):
                made = self._call(_operator(number), *operands, like=number)
                made.meta["val"] = made.meta["val"].to(dtype)
                self._made[number, dtype] = made
        return self._made[number, dtype]

    def _read(self, number: Node) -> Node:
        """The tensor that forward reads a number from, without dimensions."""
        tensor: Any = number.args[0]
        if tensor.meta["val"].dim() == 0:
            return tensor
        with self._graph.inserting_before(number):
            made = self._graph.call_function(torch.ops.aten.reshape.default, (tensor, []))
        made.meta = dict(tensor.meta, val=tensor.meta["val"].reshape(()))
        return made

    def constant(self, number: Any, dtype: torch.dtype, *, before: Node) -> Node:
        """A number that is none of the symbols'."""
        with self._graph.inserting_before(before):
            return self._call("scalar_tensor.default", number, like=before, dtype=dtype)

    def cast(
        self, tensor: Any, dtype: torch.dtype, *, before: Node | None = None, after: Node | None = None
    ) -> Node:
        """A tensor in another element type."""
        place = self._graph.inserting_before(before) if before else self._graph.inserting_after(after)
        with place:
            made = self._graph.call_function(torch.ops.aten._to_copy.default, (tensor,), {"dtype": dtype})
        made.meta = dict((before or tensor).meta, val=tensor.meta["val"].to(dtype))
        return made

    def _call(self, overload: str, *operands: Any, like: Node, dtype: torch.dtype | None = None) -> Node:
        packet, name = overload.split(".")
        target = getattr(getattr(torch.ops.aten, packet), name)
        made = self._graph.call_function(target, operands, {} if dtype is None else {"dtype": dtype})
        with self._mode:
            made.meta = dict(like.meta, val=torch.empty((), dtype=dtype or torch.float64))
        return made


def _operator(number: Node) -> str:
    target: Any = number.target
    to_digits = target is round and any(a is not None for a in number.args[1:])
    found = None if to_digits else _OPERATORS.get(target) or _NAMED.get(getattr(target, "__name__", ""))
    if found is None:
        raise ExportError(
            f"a number that is computed from sizes with {getattr(target, '__name__', target)}",
            where=source_of_node(number),
            why=f"it has no translation: {number.meta.get('val')}",
            fix="compute it with + - * / ** or math.sqrt, or compile with fixed sizes",
        )
    return found


def _set(node: Node, place: int | str, value: Node) -> None:
    if isinstance(place, int):
        node.update_arg(place, value)
    else:
        node.update_kwarg(place, value)


def argument_value(argument: Any) -> Any:
    """What an argument of a node is while tracing."""
    return argument.meta.get("val") if hasattr(argument, "meta") else argument


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument_value(argument), torch.Tensor) and hasattr(argument, "meta")


def _is_size(argument: Any) -> bool:
    return isinstance(argument_value(argument), torch.SymInt)


def _is_fraction(argument: Any) -> bool:
    return isinstance(argument_value(argument), torch.SymFloat) and hasattr(argument, "meta")


def _is_number(argument: Any) -> bool:
    return hasattr(argument, "meta") and (_is_size(argument) or _is_fraction(argument))

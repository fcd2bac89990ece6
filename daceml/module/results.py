"""From the tensors that a program returns to what the user's forward returned, aliases included.

An output that is an input, or a view of one, of a parameter or of another output, is so after a compiled
call, too: whoever writes to it writes to the same memory as after an eager call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.gradients.gradient_stops import storage
from daceml.frontend.capture.object_arguments import Fixed, Given, Opened
from daceml.module.result_memory import (
    expression,
    is_whole,
    may_overlap,
    returned_nodes,
    size_symbols,
    user_tensors,
)
from daceml.module.strided_views import marked, start_in, strided

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

Number = Any
"""An int, or a SymPy expression in the symbols of the inputs' sizes."""


@dataclass(frozen=True)
class Output:
    """A tensor that the program returns."""

    index: int


@dataclass(frozen=True)
class Constant:
    """What forward returned besides tensors: None, a number, a string."""

    value: Any


@dataclass(frozen=True)
class Size:
    """A number that depends on the sizes of the inputs."""

    expression: Number


@dataclass(frozen=True)
class Input:
    """A tensor of the caller."""

    index: int


@dataclass(frozen=True, eq=False)
class Held:
    """A tensor of the module."""

    tensor: torch.Tensor


@dataclass(frozen=True)
class View:
    """A view of another leaf; sizes, strides and offset count elements of the view.

    Attributes:
        offset: behind the first element of what it is a view of.
        detached: whether gradients do not flow into what it is a view of.
        dtype: None where it is that of what it is a view of.
        conjugated, negated: whether its numbers are conjugates or negatives of what memory holds.
    """

    base: Output | Input | Held
    shape: tuple[Number, ...]
    strides: tuple[Number, ...]
    offset: Number
    detached: bool = False
    dtype: torch.dtype | None = None
    conjugated: bool = False
    negated: bool = False


@dataclass(frozen=True)
class Again:
    """The very tensor that an earlier leaf is."""

    leaf: int


Leaf = Output | Constant | Size | Input | Held | View | Again


@dataclass(frozen=True, kw_only=True)
class ResultTemplate:
    """The structure of a result.

    Attributes:
        leaves: in order.
        structure: None where the result is the program's only output.
        symbols: symbol -> (input, dimension) that it is the size of; a dimension d < 0 means the stride of
            ~d.
    """

    leaves: tuple[Leaf, ...]
    structure: pytree.TreeSpec | None
    symbols: Mapping[Any, tuple[int, int]] = field(default_factory=dict[Any, tuple[int, int]])

    @cached_property
    def gives_back(self) -> bool:
        """Whether an object, list or dict of the caller is part of the result."""
        return self.structure is not None and any(spec.type is Given for spec in _specs(self.structure))

    def fill(
        self,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        given: Sequence[Any] = (),
        finish: Callable[[list[Any]], list[Any]] | None = None,
    ) -> Any:
        """The user's result.

        Args:
            outputs: of the program.
            inputs: the caller's own tensors.
            given: the caller's objects, lists and dicts.
            finish: gets the leaves, and gives those that the user shall have.
        """
        if self.structure is None:
            return outputs[0] if finish is None else finish([outputs[0]])[0]
        sizes = {
            symbol: inputs[i].shape[axis] if axis >= 0 else inputs[i].stride(~axis)
            for symbol, (i, axis) in self.symbols.items()
        }
        leaves: list[Any] = []
        for leaf in self.leaves:
            again = isinstance(leaf, Again)
            leaves.append(leaves[leaf.leaf] if again else self._leaf(leaf, outputs, inputs, sizes))
        leaves = leaves if finish is None else finish(leaves)
        return _assembled(iter(leaves), self.structure, given)

    def _leaf(
        self,
        leaf: Output | Constant | Size | Input | Held | View,
        outputs: Sequence[torch.Tensor],
        inputs: Sequence[torch.Tensor],
        sizes: Mapping[Any, int],
    ) -> Any:
        match leaf:
            case Output(index):
                return outputs[index]
            case Input(index):
                return inputs[index]
            case Held(tensor):
                return tensor
            case Constant(value):
                return value
            case Size(expression):
                return _number(expression, sizes)
            case View(base, shape, strides, offset, detached, dtype, conjugated, negated):
                tensor: torch.Tensor = self._leaf(base, outputs, inputs, sizes)
                tensor = tensor.detach() if detached else tensor
                extents, steps = ([_number(n, sizes) for n in numbers] for numbers in (shape, strides))
                view = strided(tensor, dtype or tensor.dtype, extents, steps, _number(offset, sizes))
                return marked(view, conjugated=conjugated, negated=negated)


def _specs(structure: pytree.TreeSpec) -> Iterator[pytree.TreeSpec]:
    yield structure
    for child in structure.children():
        yield from _specs(child)


def _assembled(leaves: Iterator[Any], structure: pytree.TreeSpec, given: Sequence[Any]) -> Any:
    """Leaves in a structure, as pytree does it, except that a `torch.Size` stays one."""
    if structure.is_leaf():
        return next(leaves)
    if structure.type is Given:
        return given[structure.context.number]
    if structure.type is Fixed:
        return structure.context.value
    parts = [_assembled(leaves, child, given) for child in structure.children()]
    if structure.type is torch.Size:
        return torch.Size(parts)
    if structure.type is Opened:
        kind, names = structure.context
        return Opened(kind, names, parts).closed()
    return pytree.SUPPORTED_NODES[structure.type].unflatten_fn(parts, structure.context)


def result_template(
    program: ExportedProgram, state: Mapping[str, torch.Tensor], replaced: Mapping[int, Node]
) -> ResultTemplate:
    """Read the structure of the result off an exported program.

    The program's outputs are the tensor leaves in order, aliases included.

    Args:
        state: the module's own tensors by state_dict key.
        replaced: what forward returned where the program returns all of its memory, by place.
    Raises:
        RunsEagerlyError: results share memory with each other, and none of them is all of it; or a number
            among them is the value of a tensor.
    """
    from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument

    bases = _bases(program, state)
    nodes = {node.name: node for node in program.graph.nodes}
    returned = returned_nodes(program)
    bases.enter_results(returned)
    leaves: list[Leaf] = []
    tensors: list[Leaf] = []
    known: dict[Node, int] = {}
    count = 0
    for spec in program.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            continue
        if isinstance(spec.arg, ConstantArgument):
            leaves.append(Constant(spec.arg.value))
        elif isinstance(spec.arg, TensorArgument):
            node = replaced.get(count, returned[count])
            leaf: Leaf = bases.leaf(node, Output(count))
            place = known.setdefault(_origin(node), len(leaves))
            if place < len(leaves) and isinstance(leaf, View | Output):
                leaf = Again(place)
            tensors.append(leaf)
            leaves.append(leaf)
            count += 1
        else:
            value = nodes[spec.arg.name].meta["val"]  # pyright: ignore[reportAttributeAccessIssue]
            leaves.append(
                _size(value.node.expr, bases.symbols) if hasattr(value, "node") else Constant(value)
            )
    _refuse_lost_sharing([node for place, node in enumerate(returned) if tensors[place] == Output(place)])
    structure = program.call_spec.out_spec
    plain = structure is not None and structure.is_leaf() and leaves == [Output(0)]
    return ResultTemplate(leaves=tuple(leaves), structure=None if plain else structure, symbols=bases.symbols)


def _size(expression: Number, known: Container[Any]) -> Size:
    if not all(symbol in known for symbol in expression.free_symbols):
        raise RunsEagerlyError("forward returns a number that is the value of a tensor")
    return Size(expression)


class _Bases:
    """Tensors that exist outside the program, or have been returned already, by node and by memory."""

    def __init__(self, symbols: Mapping[Any, tuple[int, int]]) -> None:
        self.symbols = symbols
        self._by_node: dict[Any, Output | Input | Held] = {}
        self._by_storage: dict[int, tuple[Any, Output | Input | Held]] = {}

    def enter(self, node: Any, base: Output | Input | Held) -> None:
        self._by_node.setdefault(node, base)
        if (memory := storage(node)) is not None:
            self._by_storage.setdefault(memory, (node, base))

    def enter_results(self, nodes: Sequence[Any]) -> None:
        """Let a result that is all of its memory be the base of the others, wherever it stands.

        One of real or complex numbers comes first: gradients do not flow through views of integers.
        """
        positions: dict[Any, Output] = {}
        for position, node in enumerate(nodes):
            positions.setdefault(node, Output(position))
        for node, position in sorted(positions.items(), key=lambda item: _is_integer(item[0].meta["val"])):
            memory, origin = storage(node), _origin(node, self._by_node)
            if origin in self._by_node or memory is None or memory in self._by_storage:
                continue
            if is_whole(node.meta["val"]):
                self.enter(node, position)
                self._by_node.setdefault(origin, position)

    def leaf(self, node: Any, fresh: Output) -> Leaf:
        """What a returned node is: the very tensor of a base, a view of one, or the program's output."""
        origin = _origin(node, self._by_node)
        if origin in self._by_node:
            return self._by_node[origin]
        value = node.meta["val"]
        known = self._by_storage.get(storage(node) or 0)
        if known is None:
            return fresh
        owner, base = known
        whole = owner.meta["val"]
        if isinstance(base, Output) and not is_whole(whole):
            return fresh
        start = start_in(value.dtype, whole)
        if start is None:
            return fresh
        offset = expression(value.storage_offset()) - start
        shape, strides = (tuple(map(expression, ns)) for ns in (value.shape, value.stride()))
        used = {s for n in (*shape, *strides, offset) if not isinstance(n, int) for s in n.free_symbols}
        dtype = None if value.dtype == whole.dtype else value.dtype
        marks = {"conjugated": value.is_conj(), "negated": value.is_neg()}
        view = View(base, shape, strides, offset, _stopped(node, owner), dtype, **marks)
        return view if used <= self.symbols.keys() else fresh


def _is_integer(value: torch.Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex())


def _bases(program: ExportedProgram, state: Mapping[str, torch.Tensor]) -> _Bases:
    found = _Bases(size_symbols(program))
    signature = program.graph_signature
    keys = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    constants = signature.inputs_to_lifted_tensor_constants
    places = {node: place for place, node in enumerate(user_tensors(program))}
    for node in program.graph.nodes:
        if node in places:
            found.enter(node, Input(places[node]))
        elif node.op == "placeholder":
            tensor = state.get(keys.get(node.name, ""), program.constants.get(constants.get(node.name, "")))
            if isinstance(tensor, torch.Tensor):
                found.enter(node, Held(tensor))
    return found


def _origin(node: Any, known: Container[Any] = ()) -> Any:
    """The node whose very tensor a node returns, back to one of those that are known."""
    while node not in known:
        before = _written_and_returned(node)
        if before is None:
            break
        node = before
    return node


def _written_and_returned(node: Any) -> Any | None:
    """The argument that an operator changes in place and returns, as its schema says: `out`, or the first."""
    place = 0
    if node.target is operator.getitem:
        node, place = node.args
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable or place >= len(schema.returns):
        return None
    alias = schema.returns[place].alias_info
    if alias is None or not alias.is_write:
        return None
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.before_set & alias.before_set:
            given = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            return given if hasattr(given, "meta") else None
    return None


def _refuse_lost_sharing(fresh: Sequence[Any]) -> None:
    """Refuse results of their own memory that eager PyTorch keeps in one."""
    by_storage: dict[int, list[torch.Tensor]] = {}
    for node in dict.fromkeys(fresh):
        if (memory := storage(node)) is not None:
            by_storage.setdefault(memory, []).append(node.meta["val"])
    for values in by_storage.values():
        if any(may_overlap(a, b) for place, a in enumerate(values) for b in values[:place]):
            raise RunsEagerlyError("forward returns tensors that share memory, of which none is the whole")


def _stopped(node: Any, owner: Any) -> bool:
    """Whether a gradient ends between a tensor and its view."""
    while (
        node is not owner
        and node.op == "call_function"
        and hasattr(node.args[0] if node.args else None, "op")
    ):
        if str(node.target) == "daceml.stop_gradient.default":
            return True
        node = node.args[0]
    return False


def _number(number: Number, sizes: Mapping[Any, int]) -> Any:
    if isinstance(number, int):
        return number
    value = number.xreplace(sizes)
    if isinstance(value, int) or value.is_integer:
        return int(value)
    return bool(value) if value.is_Boolean else float(value)

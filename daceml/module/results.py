"""From the tensors that a program returns to what the user's forward returned, aliases included.

An output that is an input, or a view of one, of a parameter or of another output, is so after a compiled
call, too: whoever writes to it writes to the same memory as after an eager call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from torch.export import ExportedProgram

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
    """A view of another leaf, in elements of its storage.

    Attributes:
        detached: whether gradients do not flow into what it is a view of.
    """

    base: Output | Input | Held
    shape: tuple[Number, ...]
    strides: tuple[Number, ...]
    offset: Number
    detached: bool = False


Leaf = Output | Constant | Size | Input | Held | View


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

    def fill(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> Any:
        """The user's result.

        Args:
            outputs: of the program.
            inputs: the caller's own tensors.
        """
        if self.structure is None:
            return outputs[0]
        sizes = {
            symbol: inputs[i].shape[axis] if axis >= 0 else inputs[i].stride(~axis)
            for symbol, (i, axis) in self.symbols.items()
        }
        leaves = [self._leaf(leaf, outputs, inputs, sizes) for leaf in self.leaves]
        return pytree.tree_unflatten(leaves, self.structure)

    def _leaf(
        self,
        leaf: Leaf,
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
            case View(base, shape, strides, offset, detached):
                tensor: torch.Tensor = self._leaf(base, outputs, inputs, sizes)
                tensor = tensor.detach() if detached else tensor
                extents, steps = ([_number(n, sizes) for n in numbers] for numbers in (shape, strides))
                return tensor.as_strided(extents, steps, tensor.storage_offset() + _number(offset, sizes))


def result_template(program: ExportedProgram, state: Mapping[str, torch.Tensor]) -> ResultTemplate:
    """Read the structure of the result off an exported program.

    The program's outputs are the tensor leaves in order, aliases included.

    Args:
        state: the module's own tensors by state_dict key.
    """
    from torch.export.graph_signature import ConstantArgument, OutputKind, TensorArgument

    bases = _bases(program, state)
    nodes = {node.name: node for node in program.graph.nodes}
    leaves: list[Leaf] = []
    count = 0
    for spec in program.graph_signature.output_specs:
        if spec.kind is not OutputKind.USER_OUTPUT:
            continue
        if isinstance(spec.arg, ConstantArgument):
            leaves.append(Constant(spec.arg.value))
        elif isinstance(spec.arg, TensorArgument):
            leaves.append(bases.leaf(nodes[spec.arg.name], Output(count)))
            count += 1
        else:
            value = nodes[spec.arg.name].meta["val"]  # pyright: ignore[reportAttributeAccessIssue]
            leaves.append(Size(value.node.expr) if hasattr(value, "node") else Constant(value))
    structure = program.call_spec.out_spec
    plain = structure is not None and structure.is_leaf() and leaves == [Output(0)]
    return ResultTemplate(leaves=tuple(leaves), structure=None if plain else structure, symbols=bases.symbols)


class _Bases:
    """Tensors that exist outside the program, or have been returned already, by node and by memory."""

    def __init__(self) -> None:
        self.symbols: dict[Any, tuple[int, int]] = {}
        self._by_node: dict[Any, Output | Input | Held] = {}
        self._by_storage: dict[int, tuple[Any, Output | Input | Held]] = {}

    def enter(self, node: Any, base: Output | Input | Held) -> None:
        self._by_node.setdefault(node, base)
        storage = _storage(node.meta.get("val"))
        if storage is not None:
            self._by_storage.setdefault(storage, (node, base))

    def leaf(self, node: Any, fresh: Output) -> Leaf:
        """What a returned node is: the very tensor of a base, a view of one, or the program's output."""
        origin = node
        while origin not in self._by_node and (_returns_first_argument(origin) or _changes_nothing(origin)):
            origin = origin.args[0]
        if origin in self._by_node:
            return self._by_node[origin]
        value = node.meta["val"]
        known = self._by_storage.get(_storage(value) or 0)
        if known is None:
            self.enter(node, fresh)
            return fresh
        owner, base = known
        whole = owner.meta["val"]
        if value.dtype != whole.dtype or (isinstance(base, Output) and not _row_major(whole)):
            return fresh
        offset = _expression(value.storage_offset()) - _expression(whole.storage_offset())
        shape, strides = (tuple(map(_expression, ns)) for ns in (value.shape, value.stride()))
        used = {s for n in (*shape, *strides, offset) if not isinstance(n, int) for s in n.free_symbols}
        view = View(base, shape, strides, offset, _stopped(node, owner))
        return view if used <= self.symbols.keys() else fresh


def _bases(program: ExportedProgram, state: Mapping[str, torch.Tensor]) -> _Bases:
    found = _Bases()
    signature = program.graph_signature
    keys = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    constants = signature.inputs_to_lifted_tensor_constants
    position = 0
    for node in program.graph.nodes:
        value = node.meta.get("val")
        if node.op != "placeholder" or not isinstance(value, torch.Tensor):
            continue
        if node.name in keys:
            if keys[node.name] in state:
                found.enter(node, Held(state[keys[node.name]]))
        elif node.name in constants:
            tensor = program.constants.get(constants[node.name])
            if isinstance(tensor, torch.Tensor):
                found.enter(node, Held(tensor))
        else:
            found.enter(node, Input(position))
            places = [*enumerate(value.shape), *((~axis, n) for axis, n in enumerate(value.stride()))]
            for axis, number in places:
                expression = _expression(number)
                if getattr(expression, "is_Symbol", False):
                    found.symbols.setdefault(expression, (position, axis))
            position += 1
    return found


def _returns_first_argument(node: Any) -> bool:
    """Whether an operator changes its first argument in place and returns it."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None or not schema.is_mutable or len(schema.returns) != 1:
        return False
    alias = schema.returns[0].alias_info
    return alias is not None and alias.is_write and hasattr(node.args[0] if node.args else None, "meta")


_DROPOUTS = frozenset(
    {"aten.dropout", "aten.feature_dropout", "aten.alpha_dropout", "aten.feature_alpha_dropout"}
)
_CONVERSIONS = frozenset({"aten.to", "aten.contiguous", "aten.type_as"})


def _changes_nothing(node: Any) -> bool:
    """Whether an operator gives its first argument back because there is nothing to do."""
    operator = str(getattr(node.target, "overloadpacket", ""))
    if operator in _DROPOUTS:
        _, p, train = node.args
        return p == 0 or not train
    if operator not in _CONVERSIONS or not isinstance(given := node.args[0].meta.get("val"), torch.Tensor):
        return False
    value = node.meta["val"]
    return value is given or (_storage(value) == _storage(given) and value.dtype == given.dtype)


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


def _storage(value: Any) -> int | None:
    try:
        return value.untyped_storage()._cdata
    except (AttributeError, NotImplementedError, RuntimeError):
        return None


def _row_major(value: torch.Tensor) -> bool:
    """Whether a tensor is laid out as the program returns it, and is all of its memory."""
    return bool(value.is_contiguous()) and bool(value.storage_offset() == 0)


def _expression(number: Any) -> Any:
    return number.node.expr if isinstance(number, torch.SymInt) else number


def _number(number: Number, sizes: Mapping[Any, int]) -> Any:
    if isinstance(number, int):
        return number
    value = number.xreplace(sizes)
    if isinstance(value, int) or value.is_integer:
        return int(value)
    return bool(value) if value.is_Boolean else float(value)

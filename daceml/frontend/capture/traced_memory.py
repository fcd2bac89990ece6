"""What shares memory in a trace and not in an eager call, or the other way round, put right.

Which tensors of a graph share memory is read off the storages of its traced values. torch traces some
operators by Python code that copies where the operator itself returns its operand, or the other way round.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _functorch as functorch  # pyright: ignore
from torch.export.graph_signature import TensorArgument
from torch.utils import _pytree as pytree

from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.gradients.gradient_stops import follows_from_tensors, regions

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule, Node

_aten = torch.ops.aten

# (x, p, train): they return x itself where there is nothing to drop.
_DROPOUTS = frozenset({
    _aten.dropout, _aten.dropout_, _aten.feature_dropout, _aten.feature_dropout_, _aten.alpha_dropout,
    _aten.alpha_dropout_, _aten.feature_alpha_dropout, _aten.feature_alpha_dropout_,
})  # fmt: skip
# They return their first operand itself where there is nothing to do, which its memory tells.
_CONVERSIONS = frozenset({
    _aten.to, _aten.contiguous, _aten.type_as, _aten.positive, _aten.resolve_conj, _aten.resolve_neg,
    _aten.conj, _aten.conj_physical, _aten.real, _aten.atleast_1d, _aten.atleast_2d, _aten.atleast_3d,
})  # fmt: skip
# They return an operand without dimensions itself.
_TRANSPOSES = frozenset({_aten.mT, _aten.mH, _aten.adjoint})
# Their results are memory of their own, always.
_COPIES = frozenset({_aten.channel_shuffle, _aten.native_dropout, _aten.lift_fresh_copy})


def correct_memory(program: ExportedProgram) -> None:
    """Give traced values the memory that an eager call gives them. Mutates the program.

    Raises:
        RunsEagerlyError: forward changes the shape of a tensor that it has got back from an operator.
    """
    with torch.no_grad():
        names = program.graph_signature.inputs_to_lifted_tensor_constants
        constants = {node for node in program.graph.nodes if node.op == "placeholder" and node.name in names}
        _Correction({}, constants).run(program.graph_module)
    (returned,) = program.graph.output_node().args
    for node, spec in zip(returned, program.graph_signature.output_specs, strict=True):  # pyright: ignore[reportArgumentType]
        if isinstance(node, torch.fx.Node) and isinstance(spec.arg, TensorArgument):
            spec.arg = TensorArgument(name=node.name)


class _Correction:
    """One walk over a graph and those inside it.

    Args:
        before: of each node whose memory is another one now, the storages that its trace has.
        constants: inputs that the trace has made twice: their views lie elsewhere.
    """

    def __init__(self, before: dict[Node, set[int]], constants: set[Node]) -> None:
        self.before, self.constants = before, constants

    def run(self, module: GraphModule) -> None:
        _recount_users(module)
        needless: list[tuple[Node, Node]] = []
        for node in module.graph.nodes:
            if node.op != "call_function":
                continue
            stale = set[int]().union(*(self.before.get(operand, ()) for operand in node.all_input_nodes))
            if inside := list(regions(module, node)):
                for region in inside:
                    self._enter(node, region)
            elif (same := _returned_operand(node, self.constants)) is not None:
                needless.append((node, same))
                self._set(node, same.meta["val"])
            elif _packet(node) in _COPIES:
                self._set(node, pytree.tree_map_only(torch.Tensor, _own, node.meta["val"]))
            elif _storages(node) & stale or (node.args and node.args[0] in self.constants and _is_view(node)):
                self._set(node, _value(node))
        for node, same in reversed(needless):
            node.replace_all_uses_with(same)
            if all(
                node in operand.users for operand in node.all_input_nodes
            ):  # torch has forgotten dead nodes
                module.graph.erase_node(node)
        _refuse_changed_shapes(module, {same for _, same in needless})
        if needless:
            module.recompile()

    def _set(self, node: Node, value: Any) -> None:
        self.before[node] = _storages(node)
        node.meta["val"] = value

    def _enter(self, node: Node, region: GraphModule) -> None:
        inputs = [inner for inner in region.graph.nodes if inner.op == "placeholder"]
        given: Any = node.args[len(node.args) - len(inputs) :]
        if not str(node.target).startswith("wrap_with_"):
            self.run(region)  # the branches of torch.cond, for one: their memory is their own
            return
        for inner, outer in zip(inputs, given, strict=True):
            if outer in self.before:
                self._set(inner, outer.meta["val"])
        self.run(region)
        (returned,) = region.graph.output_node().args
        if any(inner in self.before for inner in region.graph.output_node().all_input_nodes):
            self._set(node, torch.fx.map_arg(returned, lambda inner: inner.meta.get("val")))


def _refuse_changed_shapes(module: GraphModule, shared: set[Node]) -> None:
    """A tensor that has two names in the trace would change its shape under one of them alone."""
    for node in module.graph.nodes:
        changes = torch.Tag.inplace_view in getattr(node.target, "tags", ())
        if _packet(node) is _aten.detach_ and not follows_from_tensors(node):
            continue
        if node.op == "call_function" and changes and node.args[0] in shared:
            raise RunsEagerlyError(f"forward changes the shape or the strides of {node.args[0]} in place")


def _recount_users(module: GraphModule) -> None:
    """torch.export forgets users where it makes regions without gradients."""
    for node in module.graph.nodes:
        node.users.clear()
    for node in module.graph.nodes:
        for operand in node.all_input_nodes:
            operand.users[node] = None


def _packet(node: Any) -> Any:
    return getattr(node.target, "overloadpacket", None)


def _is_view(node: Node) -> bool:
    """Whether an operator returns its first operand, or a view of it."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.arguments) and schema.arguments[0].alias_info is not None


def _returned_operand(node: Node, constants: set[Node]) -> Node | None:
    """The operand whose very tensor an operator returns, where it has nothing to do."""
    if node.target is operator.getitem and _packet(node.args[0]) is _aten.broadcast_tensors:
        source: Any = node.args[0]
        operand = source.args[0][node.args[1]]
        return operand if operand.meta["val"].shape == node.meta["val"].shape else None
    packet = _packet(node)
    first: Any = node.args[0] if node.args else None
    if packet is _aten.cartesian_prod:
        return first[0] if len(first) == 1 else None
    if packet in _DROPOUTS:
        _, p, train = node.args
        return first if p == 0 or not train or first.meta["val"].numel() == 0 else None
    if packet in _TRANSPOSES:
        return first if first.meta["val"].dim() == 0 else None
    if packet in _CONVERSIONS and (_storages(node) == _storages(first) or first in constants):
        value, given = node.meta["val"], first.meta["val"]
        same = value.dtype == given.dtype and value.shape == given.shape and value.stride() == given.stride()
        return first if same and True not in (*node.args[2:], *node.kwargs.values()) else None
    return None


def _own(value: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(value)


def _value(node: Node) -> Any:
    """What an operator makes of the values of its operands."""
    if node.target is operator.getitem:
        source, place = node.args
        return source.meta["val"][place]  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.is_mutable:
        return node.args[0].meta["val"]  # pyright: ignore[reportAttributeAccessIssue, reportOptionalMemberAccess]
    args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda operand: operand.meta["val"])
    return node.target(*args, **kwargs)  # pyright: ignore[reportCallIssue]


def _storages(node: Node) -> set[int]:
    """The storages of what a node returns."""
    value = node.meta.get("val")
    parts = value if isinstance(value, tuple | list) else [value]
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    dense = [part for part in tensors if part.layout is torch.strided]  # others have no storage
    return {_plain(part).untyped_storage()._cdata for part in dense}  # pyright: ignore[reportPrivateUsage]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """What torch.vmap and torch.func have wrapped; the tensor itself where they have not."""
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor

"""Where gradients end: `detach`, `item`, and what forward computes under `no_grad`, marked in a program.

torch keeps the first as a copy, which later stages remove, the second as a number, which they make a tensor
again, and the third as a graph of its own, which they inline. All get a node of `daceml::stop_gradient`
instead, which every stage keeps.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.gradients.custom_gradients import with_gradient
from daceml.frontend.capture.number_uses import reads_a_number

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Graph, GraphModule, Node

_DETACH = torch.ops.aten.detach.default
_DETACH_IN_PLACE = torch.ops.aten.detach_.default
_NUMBERS = torch.ops.aten.lift_fresh_copy.default
"""A tensor that forward makes of numbers."""


_VALUES_UNREAD = frozenset(
    f"aten::{name}"
    for name in (
        "empty_like", "full_like", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros",
        "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like",
    )
)  # fmt: skip


_FIRST_READ = frozenset(f"aten::{name}" for name in ("expand_as", "reshape_as", "to", "type_as", "view_as"))


def operands_read(node: Node) -> list[Node]:
    """The operands that a result has a gradient to; of the others an operator takes sizes or type alone.

    Of an `autograd.Function` these are the operands that its backward pass returns a gradient for.
    """
    if node.target is with_gradient():
        return list(node.args[1])  # pyright: ignore[reportArgumentType, reportCallIssue]
    name = getattr(node.target, "_schema", node).name
    if name in _VALUES_UNREAD:
        return []
    return node.all_input_nodes[:1] if name in _FIRST_READ else node.all_input_nodes


@functools.cache
def stop_gradient() -> Any:
    """The operator: the value of its operand, and no gradient."""

    @torch.library.custom_op("daceml::stop_gradient", mutates_args=())
    def stop(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @stop.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    return torch.ops.daceml.stop_gradient.default


def mark_gradient_stops(program: ExportedProgram) -> None:
    """Put a node wherever a gradient ends. Mutates the program.

    Raises:
        RunsEagerlyError: gradients are switched on again inside a region without them.
    """
    _mark(program.graph_module)


def _mark(module: GraphModule) -> None:
    graph = module.graph
    later = _written_later(module)
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target is _DETACH_IN_PLACE and not follows_from_tensors(node):
            continue
        if node.target in (_DETACH, _DETACH_IN_PLACE):
            _refuse_written(storage(node), later[node])
            node.target = stop_gradient()
            continue
        if reads_a_number(node) and _is_float(node.args[0]):
            _stop_operand(graph, node)
            continue
        for region in regions(module, node):
            # regions of autocast and of gradients are all there is; what runs without them ends here
            if switches_off(node):
                _refuse_inside(region)
                for operand in node.all_input_nodes:
                    if any(storage(user) == storage(operand) for user in node.users):
                        _refuse_written(storage(operand), later[node])
                _stop_operands(region)
                _stop_results(graph, node)
            else:
                _mark(region)
    graph.lint()
    module.recompile()


def follows_from_tensors(node: Node) -> bool:
    """Whether a tensor may have a gradient: it follows from tensors, not from sizes and numbers alone.

    `torch.tensor(1.0)` and `torch.tensor(x.size(0))` detach in place what they have just made.
    """
    seen, waiting = {node}, [node]
    while waiting:
        current = waiting.pop()
        if current.target is _NUMBERS:
            continue
        if current.op != "call_function":
            return True
        operands = [n for n in current.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
        waiting += [operand for operand in operands if operand not in seen]
        seen.update(operands)
    return False


def _written_later(module: GraphModule) -> dict[Node, frozenset[int | None]]:
    """For each node whose memory the nodes after it change."""
    written: frozenset[int | None] = frozenset()
    found: dict[Node, frozenset[int | None]] = {}
    for node in reversed(module.graph.nodes):
        found[node] = written
        inside = [target for region in regions(module, node) for target in changed(region)]
        written |= {storage(target) for target in (*inside, *changed_by(node))} - {None}
    return found


def _refuse_written(place: int | None, written: frozenset[int | None]) -> None:
    """A stop is a value of its own: who changes it does not change what it was made of."""
    if place in written:
        raise RunsEagerlyError("forward changes in place what shares memory with a detached tensor")


def regions(module: GraphModule, node: Node) -> Iterator[GraphModule]:
    """The graphs that a node holds."""
    for operand in node.args:
        if isinstance(operand, torch.fx.Node) and operand.op == "get_attr":
            held = getattr(module, str(operand.target))
            if isinstance(held, torch.fx.GraphModule):
                yield held


def switches_off(node: Node) -> bool:
    """Whether a node is a region without gradients."""
    return str(node.target) == "wrap_with_set_grad_enabled" and not node.args[0]


def changed(module: GraphModule) -> Iterator[Node]:
    """Tensors that a graph, or a region in it, changes in place."""
    for node in module.graph.nodes:
        for region in regions(module, node):
            yield from changed(region)
        yield from changed_by(node)


def changed_by(node: Node) -> Iterator[Node]:
    """What an operator changes in place."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None and schema.is_mutable:
        for formal, actual in zip(schema.arguments, node.args, strict=False):
            if formal.alias_info and formal.alias_info.is_write and isinstance(actual, torch.fx.Node):
                yield actual


def storage(node: Node) -> int | None:
    """What tells whose memory a node's tensor is; None for no tensor."""
    try:
        return node.meta["val"].untyped_storage()._cdata
    except (KeyError, AttributeError, NotImplementedError, RuntimeError):
        return None


def _refuse_inside(module: GraphModule) -> None:
    for node in module.graph.nodes:
        if str(node.target) == "wrap_with_set_grad_enabled" and node.args[0]:
            raise RunsEagerlyError("forward switches gradients on inside a region without them")
        for region in regions(module, node):
            _refuse_inside(region)


def _stop_operands(region: GraphModule) -> None:
    """What a region writes into tensors from outside carries no gradient out of it."""
    written = {storage(target) for target in changed(region)}
    operands = [node for node in region.graph.nodes if node.op == "placeholder"]
    if not any(storage(node) in written for node in operands):
        return
    for node in operands:
        if storage(node) not in written and _is_float(node):
            _stop(region.graph, node)
    region.recompile()


def _stop_results(graph: Graph, node: Node) -> None:
    for user in list(node.users):
        if user.target is not operator.getitem:
            continue
        if _is_float(user):
            _stop(graph, user)


def _stop_operand(graph: Graph, node: Node) -> None:
    operand: Any = node.args[0]
    with graph.inserting_before(node):
        stop = graph.call_function(stop_gradient(), (operand,))
    stop.meta.update(operand.meta)
    node.update_arg(0, stop)


def _stop(graph: Graph, node: Node) -> None:
    with graph.inserting_after(node):
        stop = graph.call_function(stop_gradient(), (node,))
    stop.meta.update(node.meta)
    node.replace_all_uses_with(stop, delete_user_cb=lambda other: other is not stop)


def _is_float(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()

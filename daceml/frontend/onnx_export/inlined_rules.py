"""Decompositions in place: a node gives way to the operators of its rule, and the rest of the graph stays.

`run_decompositions` traces the whole graph again and prepares every composite operator of torch for it, which
takes longer than all else in the translation of a small graph. A rule alone is traced in milliseconds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from daceml.frontend.onnx_export.functionalize import (
    changes_a_tensor,
    copied,
    functionalize,
    rename_outputs,
)
from daceml.runtime.torch_fallback import draws_numbers

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    Node = torch.fx.Node


_PROVENANCE = ("nn_module_stack", "stack_trace", "custom", "original_aten")
"""What is kept of a node: where it comes from, and the first operator that it stood for."""


class NeedsWholeGraphError(Exception):
    """A node cannot be replaced by its rule alone; the message says why."""


def inline(program: ExportedProgram, table: Mapping[Any, Callable[..., Any]]) -> ExportedProgram:
    """The functional program with some operators written with others, functional too; works on a copy.

    Args:
        table: operator -> its rule, a function of its arguments; `NotImplemented` leaves a node as it is.

    Raises:
        NeedsWholeGraphError: a rule cannot be traced alone, contains a constant tensor, or has sizes that
            depend on data.
    """
    program = copied(program)
    graph = program.graph
    if any(node.op == "get_attr" for node in graph.nodes):
        raise NeedsWholeGraphError("the graph contains another graph or a constant tensor")
    for node in list(graph.nodes):
        rule = table.get(node.target) if node.op == "call_function" else None
        if rule is not None:
            _replace(node, rule, table)
    rename_outputs(program)
    # a rule may change what it has made
    return functionalize(program) if any(map(changes_a_tensor, graph.nodes)) else program


def _replace(node: Node, rule: Callable[..., Any], table: Mapping[Any, Callable[..., Any]]) -> None:
    traced, results = _traced(node, rule, table)
    if results is NotImplemented:
        return
    with node.graph.inserting_before(node):
        made = _put(traced, node)
    results = pytree.tree_map(lambda one: made.get(one, one), results)
    if not isinstance(results, list | tuple):
        node.replace_all_uses_with(results)
    for user in list(node.users):
        if user.target is not operator.getitem or not isinstance(results, list | tuple):
            raise NeedsWholeGraphError(f"{user} takes all results of {node}")
        place: Any = user.args[1]
        user.replace_all_uses_with(results[place])
        node.graph.erase_node(user)
    node.graph.erase_node(node)
    for one in (made[part] for part in reversed(traced) if part.op != "placeholder"):
        if not one.users and not draws_numbers(one.target, one.args, one.kwargs):
            node.graph.erase_node(one)


def _traced(node: Node, rule: Callable[..., Any], table: Mapping[Any, Any]) -> tuple[list[Node], Any]:
    """The nodes of a rule, its operands first; and what it gives back, over these nodes."""
    flat, spec = pytree.tree_flatten((node.args, dict(node.kwargs)))
    operands = list(node.all_input_nodes)
    places = {operand: place for place, operand in enumerate(operands)}
    refused = False

    def apply(*values: Any) -> Any:
        nonlocal refused
        given = [values[places[leaf]] if isinstance(leaf, torch.fx.Node) else leaf for leaf in flat]
        args, kwargs = pytree.tree_unflatten(given, spec)
        made = rule(*args, **kwargs)
        refused = made is NotImplemented
        if refused:
            return ()
        return tuple(made) if isinstance(made, tuple) else made  # named ones would be a call in the graph

    values = [operand.meta["val"] for operand in operands]
    # a rule may be written with operators that have one, too
    within = {target: other for target, other in table.items() if isinstance(target, OpOverload)}
    fake = detect_fake_mode([*values, node.meta.get("val")])
    if fake is None:
        raise NeedsWholeGraphError(f"the shapes of {node} are not known")
    try:
        with fake, torch.no_grad():
            module = make_fx(apply, within, pre_dispatch=True)(*values)
    except Exception as error:
        raise NeedsWholeGraphError(f"the rule of {node.target} cannot be traced alone: {error}") from error
    if refused:
        return [], NotImplemented
    _check(module, values, node.target)
    nodes = list(module.graph.nodes)
    return nodes[:-1], nodes[-1].args[0]


def _check(module: torch.fx.GraphModule, values: list[Any], target: Any) -> None:
    known = set[Any]().union(*map(free_unbacked_symbols, values))
    for node in module.graph.nodes:
        if node.op == "get_attr":
            raise NeedsWholeGraphError(f"the rule of {target} contains a constant tensor")
        if node.op != "call_function":
            continue
        schema = getattr(node.target, "_schema", None)
        if schema is None and not getattr(node.target, "__module__", "").endswith("operator"):
            raise NeedsWholeGraphError(f"the rule of {target} calls {node.target}")
        if not set(free_unbacked_symbols(node.meta.get("val"))) <= known:
            raise NeedsWholeGraphError(
                f"the rule of {target} has sizes that depend on data, from {node.target}"
            )


def _put(traced: list[Node], node: Node) -> dict[Node, Node]:
    """Copies of a rule's nodes in the graph of the node that they stand for, with its provenance."""
    made: dict[Node, Node] = {}
    operands = iter(node.all_input_nodes)
    for one in traced:
        if one.op == "placeholder":
            made[one] = next(operands)
            continue
        made[one] = node.graph.node_copy(one, lambda inner: made[inner])
        kept = {key: node.meta[key] for key in _PROVENANCE if key in node.meta}
        made[one].meta = {"val": one.meta.get("val"), "original_aten": node.target, **kept}
    return made

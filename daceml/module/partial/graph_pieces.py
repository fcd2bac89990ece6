"""Cut a graph at operators: those that no program can express run eagerly, the others in programs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.passes.split_module import split_module

from daceml.frontend.capture.provenance import source_of_node
from daceml.frontend.capture.sizes.hints import hint
from daceml.module.partial.cut import Cut
from daceml.module.partial.dynamo_graph import DynamoGraph, value_of

Check = Callable[[DynamoGraph, Sequence[Any]], "Cut | None"]
"""Whether a graph can be a program for arguments like these: None, or why not."""

_CALLS = ("call_function", "call_method", "call_module")

# Whether an operation is worth a program is not known; one or two cost less than the call of a program.
_FEWEST = 3
_MODES = (
    "_set_grad_enabled",
    "_enter_",
    "_exit_",
    "inference_mode",
    "set_grad_enabled",
    "_saved_tensors_hooks",
)
_NAMED = 4
_HEAVY = ("linear", "matmul", "conv", "bmm", "mm", "einsum", "attention", "lstm", "gru", "rnn", "baddbmm")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Consecutive nodes of a graph.

    Attributes:
        name: its operators, the first few of them.
        cut: why they run eagerly; None if they are a program.
    """

    name: str
    cut: Cut | None


def pieces_of(graph: fx.GraphModule, why: Cut, check: Check) -> tuple[fx.GraphModule, dict[str, Piece]]:
    """Split a graph into consecutive pieces that are compiled or run eagerly, in the order of the graph.

    The order is kept, so operators that change tensors or draw random numbers do so as before.

    Args:
        why: why the graph as a whole is not a program.
        check: is asked about each distinct operation, on its own.
    Returns:
        a graph that calls the pieces, and what each of its submodules is.
    """
    refusals = _refused_nodes(graph, check)
    nodes = [node for node in graph.graph.nodes if node.op not in ("placeholder", "output", "get_attr")]
    number = _runs(nodes, refusals) if refusals or len(nodes) <= _FEWEST else _halves(nodes)
    last = 0
    for node in graph.graph.nodes:  # constants belong to the piece that reads them next
        last = number.setdefault(node, last)
    split = split_module(graph, graph, lambda node: number[node], keep_original_order=True)
    pieces: dict[str, Piece] = {}
    for name, part in split.named_children():
        if not isinstance(part, fx.GraphModule):
            continue
        inside = [node for node in part.graph.nodes if node.op in _CALLS]
        refused = [refusals[node.name] for node in inside if node.name in refusals]
        cut = refused[0] if refused else None
        if cut is None and not _is_worth(inside):
            cut = Cut(
                what="it is too little for a program", where=source_of_node(inside[0]) if inside else ""
            )
        pieces[name] = Piece(name=_names(inside), cut=cut)
    if len(pieces) == 1 and not refusals:  # no smaller than the graph
        pieces = {name: Piece(name=piece.name, cut=piece.cut or why) for name, piece in pieces.items()}
    return split, pieces


def _halves(nodes: Sequence[fx.Node]) -> dict[fx.Node, int]:
    """Each operation can be compiled and the whole cannot: smaller parts are tried."""
    middle = len(nodes) // 2
    number: dict[fx.Node, int] = {}
    for position, node in enumerate(nodes):
        number[node] = _with_producer(node, number, int(position >= middle))
    return number


def _runs(nodes: Sequence[fx.Node], refusals: dict[str, Cut]) -> dict[fx.Node, int]:
    number: dict[fx.Node, int] = {}
    current, eager = 0, None
    for node in nodes:
        refused = node.name in refusals
        if eager is None:
            eager = refused
        elif refused != eager and not _follows(node):
            current, eager = current + 1, refused
        number[node] = _with_producer(node, number, current)
    return number


def _follows(node: fx.Node) -> bool:
    """Whether a node only takes a part out of what another one returned, and so belongs to its piece."""
    source = node.args[0] if node.args else None
    return node.target is operator.getitem and isinstance(source, fx.Node) and not _is_tensor(source)


def _with_producer(node: fx.Node, number: dict[fx.Node, int], current: int) -> int:
    source = node.args[0] if node.args else None
    return number.get(source, current) if _follows(node) and isinstance(source, fx.Node) else current


def _is_tensor(node: fx.Node) -> bool:
    return isinstance(value_of(node), torch.Tensor)


def _is_worth(nodes: Sequence[fx.Node]) -> bool:
    named = [str(getattr(node.target, "__name__", node.target)) for node in nodes]
    return len(nodes) >= _FEWEST or any(word in name for name in named for word in _HEAVY)


def _refused_nodes(graph: fx.GraphModule, check: Check) -> dict[str, Cut]:
    """The operations that cannot be compiled on their own, by the names of their nodes, with the reasons."""
    known: dict[str, Cut | None] = {}
    found: dict[str, Cut] = {}
    found |= _modes(graph)
    for node in graph.graph.nodes:
        if node.op in ("placeholder", "output", "get_attr") or _follows(node) or node.name in found:
            continue
        key = _signature(node)
        if key not in known:
            known[key] = _refusal(graph, node, check)
        if (cut := known[key]) is not None:
            found[node.name] = cut
    return found


def _modes(graph: fx.GraphModule) -> dict[str, Cut]:
    """Calls that change torch's modes, in which the pieces after them run, and transforms of functions.

    torch.vmap begins and ends by calls in the graph, and values between them are those of the transform: all
    of it runs eagerly.
    """
    found: dict[str, Cut] = {}
    calls = [node for node in graph.graph.nodes if node.op == "call_function"]
    for node in calls:
        if _name(node).startswith(_MODES):
            found[node.name] = Cut(what=f"{_name(node)} changes a mode of torch", where=source_of_node(node))
    transforms = [
        i for i, node in enumerate(calls) if "_functorch" in str(getattr(node.target, "__module__", ""))
    ]
    if transforms:
        nodes = [node for node in graph.graph.nodes if node.op in _CALLS]
        first, last = nodes.index(calls[transforms[0]]), nodes.index(calls[transforms[-1]])
        for node in nodes[first : last + 1]:
            found[node.name] = Cut(
                what="a transform of a function, as torch.vmap", where=source_of_node(node)
            )
    return found


def _signature(node: fx.Node) -> str:
    def described(value: fx.Node) -> str:
        known = value_of(value)
        if isinstance(known, torch.Tensor):
            return f"{known.dtype}{tuple(known.shape)}{known.stride()}{known.requires_grad}"
        return repr(known)

    values = fx.map_arg((node.args, node.kwargs), described)  # pyright: ignore[reportArgumentType]
    return f"{node.op} {node.target} {values}"


def _refusal(graph: fx.GraphModule, node: fx.Node, check: Check) -> Cut | None:
    """Why one operation cannot be compiled on its own."""
    operands: list[fx.Node] = []
    fx.map_arg((node.args, node.kwargs), operands.append)  # pyright: ignore[reportArgumentType]
    operands = list(dict.fromkeys(operands))
    source = source_of_node(node)
    numbers = {operand: number for operand in operands if (number := _number(operand)) is not None}
    if _number(node) is not None and len(numbers) == len(operands):
        return None  # it belongs to the piece that it is in
    if not all(_is_tensor(o) or o.op == "get_attr" or o in numbers for o in operands):
        return Cut(what=f"{_name(node)} takes a value that is not a tensor", where=source)
    alone = fx.Graph()
    inputs: dict[fx.Node, Any] = dict(numbers)
    examples: list[torch.Tensor] = []
    for operand in operands:
        if operand.op == "get_attr":
            inputs[operand] = alone.get_attr(operand.target)  # pyright: ignore[reportArgumentType]
            continue
        if operand in numbers:
            continue
        fake = value_of(operand)
        examples.append(_like(fake))
        inputs[operand] = alone.placeholder(operand.name)
        inputs[operand].meta["example_value"] = examples[-1]
    made = alone.node_copy(node, inputs.__getitem__)
    alone.output(made)
    cut = check(DynamoGraph(fx.GraphModule(graph, alone)), examples)
    if cut is None:
        return None
    return Cut(what=cut.what, where=source or cut.where, why=cut.why, fix=cut.fix, internal=cut.internal)


def _number(node: fx.Node) -> int | float | None:
    """What a number was in the call that was traced; None for other values."""
    value = hint(value_of(node))
    return value if isinstance(value, int | float) else None


def _like(fake: torch.Tensor) -> torch.Tensor:
    """A tensor like a fake one; its numbers do not count, but indices among them have to be valid."""
    sizes = [int(n) for n in fake.shape]
    strides = [int(n) for n in fake.stride()]
    made = torch.empty_strided(sizes, strides, dtype=fake.dtype, device=fake.device).zero_()
    return made.requires_grad_(fake.requires_grad and (made.is_floating_point() or made.is_complex()))


def _names(nodes: Sequence[fx.Node]) -> str:
    names = list(dict.fromkeys(map(_name, nodes)))
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))

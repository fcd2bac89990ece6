"""A network with gradients, cut in two: what runs in the forward pass, and what waits for the cotangents.

Whatever no result of the forward pass needs belongs to the backward pass. What the backward pass reads of the
forward one is saved: it is an output of the first part and an input of the second.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import dace
from dace.data import View
from dace.sdfg import nodes

from daceml.autodiff.activity import viewed
from daceml.autodiff.engine import Gradients
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.random_operators import draws
from daceml.sdfg.network import Network
from daceml.sdfg.sizes import size


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Forward and backward pass as networks of their own.

    Attributes:
        forward: its outputs are the user's, then those saved arrays that are none of them.
        backward: its inputs are the cotangents of the user's outputs, then `saved`, `read` and `sized`; it
            has no weights. Its outputs are the gradients, each array once.
        saved: arrays of the forward pass that the backward pass reads.
        read: inputs and weights of the forward network that the backward pass reads.
        sized: inputs of the forward network of which the backward pass needs a size, and nothing else.
        gradients: wanted array -> the array that is its gradient: an output or a cotangent of the backward
            network; None where no output depends on it.
        cotangents: output array -> array that takes its cotangent.
    """

    forward: Network
    backward: Network
    saved: tuple[str, ...]
    read: tuple[str, ...]
    sized: tuple[str, ...]
    gradients: dict[str, str | None]
    cotangents: dict[str, str]


def partition(network: Network, gradients: Gradients) -> Partition:
    """Cut a network with gradients in two. What was the network is the forward pass afterwards.

    Nodes are moved and not copied: a copy of all of it would take longer than everything else here.
    """
    state = network.state
    ahead = forward_nodes(network)
    behind = [n for n in state.nodes() if n not in ahead]
    border: dict[nodes.AccessNode, None] = {}
    for node in behind:
        for edge in state.in_edges(node):
            if edge.src in ahead:
                border |= dict.fromkeys(to_root(state, edge.src))
    held = [n.data for n in border if not isinstance(network.sdfg.arrays[n.data], View)]
    outside = {*network.inputs, *network.weights}
    saved = tuple(sorted(a for a in held if a not in outside and a not in network.constants))
    read = tuple(a for a in (*network.inputs, *network.weights) if a in held)

    cotangents = gradients.cotangents
    sized = _sized(network, (*cotangents.values(), *saved, *read))
    given = {*cotangents.values()}
    targets = [a for a in gradients.arrays.values() if a is not None and a not in given]
    backward = _taken(network, behind, border, (*cotangents.values(), *sized, *targets))
    forward = _rest(network)
    forward.outputs = (*network.outputs, *(a for a in saved if a not in network.outputs))
    _open(forward, saved)
    backward.inputs = (*cotangents.values(), *saved, *read, *sized)
    backward.outputs = tuple(dict.fromkeys(targets))
    backward.weights, backward.mutations, backward.checks = {}, {}, []
    _open(backward, (*backward.inputs, *backward.outputs))
    backward.signature = {
        **network.signature,
        **{c: f"gradient of {network.signature.get(a, a)}" for a, c in cotangents.items()},
    }
    return Partition(
        forward=forward,
        backward=backward,
        saved=saved,
        read=read,
        sized=sized,
        gradients=gradients.arrays,
        cotangents=cotangents,
    )


def _sized(network: Network, given: Iterable[str]) -> tuple[str, ...]:
    """Inputs that have the sizes which no given array has, the smallest ones."""
    arrays = network.sdfg.arrays

    def plain(array: str) -> set[str]:
        sizes = map(size, arrays[array].shape)
        return {str(extent) for extent in sizes if not isinstance(extent, int) and extent.is_Symbol}

    missing = set(network.sdfg.symbols).difference(*map(plain, given))
    found: list[str] = []
    for array in sorted(network.inputs, key=lambda a: len(arrays[a].shape)):
        if missing & plain(array):
            found.append(array)
            missing -= plain(array)
    return tuple(found)


def forward_nodes(network: Network) -> set[nodes.Node]:
    """The nodes of a network with gradients that its results depend on, what else it saves, and draws."""
    state = network.state
    checked = (check.array for check in network.checks)
    drawing = (n for n in state.nodes() if isinstance(n, ONNXNode) and draws(n))
    drawn = (str(edge.data.data) for node in drawing for edge in state.out_edges(node))
    return ancestors(state, (*network.outputs, *network.mutations, *checked, *network.saved, *drawn))


def ancestors(state: dace.SDFGState, arrays: Iterable[str]) -> set[nodes.Node]:
    """The access nodes of arrays, every node that they depend on, and what else such a node gives."""
    wanted = set(arrays)
    stack: list[nodes.Node] = [n for n in state.data_nodes() if n.data in wanted]
    found: set[nodes.Node] = set()
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += [edge.src for edge in state.in_edges(node)]
            if isinstance(node, nodes.LibraryNode | nodes.MapExit):
                stack += [e.dst for e in state.out_edges(node) if isinstance(e.dst, nodes.AccessNode)]
    return found


def to_root(state: dace.SDFGState, node: nodes.AccessNode) -> list[nodes.AccessNode]:
    """An access node, and if it is a view the nodes that it is a view of."""
    chain = [node]
    while edges := [e for e in state.in_edges(chain[-1]) if e.dst_conn == "views"]:
        assert edges[0].src.data == viewed(state, chain[-1])
        chain.append(edges[0].src)
    return chain


def _taken(
    network: Network,
    taken: Sequence[nodes.Node],
    border: Collection[nodes.AccessNode],
    arrays: Iterable[str],
) -> Network:
    """A network of nodes that are taken out of this one, and of copies of those at its border.

    Args:
        arrays: of the new network besides those that its nodes use.
    """
    state = network.state
    own: set[nodes.Node] = set(taken)
    moved: dict[nodes.Node, nodes.Node] = {n: copy.deepcopy(n) for n in border} | {n: n for n in taken}
    sdfg = dace.SDFG(network.sdfg.name)
    for symbol, dtype in network.sdfg.symbols.items():
        sdfg.add_symbol(symbol, dtype)
    part = sdfg.add_state(state.label, is_start_block=True)
    kept = [n for n in state.nodes() if n in moved]
    edges: list[Any] = [e for e in state.edges() if e.src in moved and e.dst in moved]
    state.remove_nodes_from(taken)
    for node in kept:
        part.add_node(moved[node])
    for edge in edges:
        data = edge.data if edge.src in own or edge.dst in own else copy.deepcopy(edge.data)
        part.add_edge(moved[edge.src], edge.src_conn, moved[edge.dst], edge.dst_conn, data)
    _drop_isolated(part)
    used = _used(part) | _interface(network) | {*arrays}
    for name, desc in network.sdfg.arrays.items():
        if name in used:
            sdfg.add_datadesc(name, copy.deepcopy(desc))
    return replace(
        network,
        sdfg=sdfg,
        constants={a: c for a, c in network.constants.items() if a in used},
        passes=[],
        origins=dict(network.origins),
    )


def _rest(network: Network) -> Network:
    """What is left of a network from which nodes were taken."""
    _drop_isolated(network.state)
    used = _used(network.state) | _interface(network)
    for array in list(network.sdfg.arrays):
        if array not in used:
            network.sdfg.remove_data(array, validate=False)
    return replace(
        network,
        constants={a: c for a, c in network.constants.items() if a in used},
        weights=dict(network.weights),
        mutations=dict(network.mutations),
        checks=list(network.checks),
        signature=dict(network.signature),
        passes=list(network.passes),  # what was done to operators before differentiation
        origins=dict(network.origins),
    )


def _drop_isolated(state: dace.SDFGState) -> None:
    for node in list(state.data_nodes()):
        if state.degree(node) == 0:
            state.remove_node(node)


def _used(state: dace.SDFGState) -> set[str]:
    return {n.data for n in state.data_nodes()} | {e.data.data for e in state.edges() if e.data.data}


def _interface(network: Network) -> set[str]:
    return {*network.inputs, *network.outputs, *network.weights, *network.mutations}


def _open(network: Network, arrays: Iterable[str]) -> None:
    """Let arrays belong to the caller."""
    for array in arrays:
        network.sdfg.arrays[array].transient = False

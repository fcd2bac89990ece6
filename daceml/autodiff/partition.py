"""A network with gradients, cut in two: what runs in the forward pass, and what waits for the cotangents.

Whatever no result of the forward pass needs belongs to the backward pass. What the backward pass reads of the
forward one is saved: it is an output of the first part and an input of the second.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import dace
from dace.data import View
from dace.sdfg import nodes

from daceml.autodiff.activity import viewed
from daceml.autodiff.engine import Gradients
from daceml.sdfg.network import Network


@dataclass(frozen=True, kw_only=True)
class Partition:
    """Forward and backward pass as networks of their own.

    Attributes:
        forward: its outputs are the user's, then those saved arrays that are none of them.
        backward: its inputs are the cotangents of the user's outputs, then `saved`, then `read`; it has no
            weights. Its outputs are the gradients, each array once.
        saved: arrays of the forward pass that the backward pass reads.
        read: inputs and weights of the forward network that the backward pass reads.
        gradients: wanted array -> the array that is its gradient: an output or a cotangent of the backward
            network; None where no output depends on it.
        cotangents: output array -> array that takes its cotangent.
    """

    forward: Network
    backward: Network
    saved: tuple[str, ...]
    read: tuple[str, ...]
    gradients: dict[str, str | None]
    cotangents: dict[str, str]


def partition(network: Network, gradients: Gradients) -> Partition:
    """Cut a network with gradients in two. Does not change it."""
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

    forward = _part(network, ahead, ())
    forward.passes = list(network.passes)  # what was done to operators before differentiation
    forward.outputs = (*network.outputs, *(a for a in saved if a not in network.outputs))
    _open(forward, saved)
    backward = _part(network, {*behind, *border}, gradients.cotangents.values())
    cotangents = gradients.cotangents
    given = {*cotangents.values()}
    targets = [a for a in gradients.arrays.values() if a is not None and a not in given]
    backward.inputs = (*cotangents.values(), *saved, *read)
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
        gradients=gradients.arrays,
        cotangents=cotangents,
    )


def forward_nodes(network: Network) -> set[nodes.Node]:
    """The nodes of a network with gradients that its results depend on, and what else it saves."""
    checked = (check.array for check in network.checks)
    return ancestors(network.state, (*network.outputs, *network.mutations, *checked, *network.saved))


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


def _part(network: Network, kept: Collection[nodes.Node], arrays: Iterable[str]) -> Network:
    """A copy of a network with some of its nodes only, and with these arrays besides those in use."""
    stays = [node in kept for node in network.state.nodes()]
    part = replace(
        network,
        sdfg=copy.deepcopy(network.sdfg),
        constants=dict(network.constants),
        weights=dict(network.weights),
        mutations=dict(network.mutations),
        checks=list(network.checks),
        signature=dict(network.signature),
        passes=[],
        origins=dict(network.origins),
    )
    state = part.state
    for node, stay in zip(list(state.nodes()), stays, strict=True):
        if not stay:
            state.remove_node(node)
    for node in list(state.data_nodes()):
        if state.degree(node) == 0:
            state.remove_node(node)
    used = {n.data for n in state.data_nodes()} | {e.data.data for e in state.edges() if e.data.data}
    interface = {*arrays, *network.inputs, *network.outputs, *network.weights, *network.mutations}
    for array in list(part.sdfg.arrays):
        if array not in used and array not in interface:
            part.sdfg.remove_data(array, validate=False)
            part.constants.pop(array, None)
    return part


def _open(network: Network, arrays: Iterable[str]) -> None:
    """Let arrays belong to the caller."""
    for array in arrays:
        network.sdfg.arrays[array].transient = False

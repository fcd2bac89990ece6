"""What a network must be after a pass: valid, callable as before, and of loops in canonical form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dace
from dace.sdfg import nodes
from dace.sdfg.validation import InvalidSDFGError
from dace.subsets import intersects

from daceml.errors import DacemlError, PassError
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.transformations.recipe import LOOPS, Step


def check_pass(step: Step, network: Network) -> None:
    """Refuse what a pass has left behind.

    Raises:
        PassError: the SDFG is not valid, lacks an array that the network is called with, or, behind a pass
            over loops, is not in canonical form; the message names the pass.
    """
    fault = _interface_fault(network) or _validity_fault(network)
    if fault is None and step.level in LOOPS:
        fault = canonical_fault(network)
    if fault is not None:
        raise PassError(
            f"pass {step.name} leaves a network that cannot be compiled",
            where=f"recipe, level {step.level}",
            why=fault,
            fix="mend the pass, or leave it out: recipe.without(name)",
        )


def _interface_fault(network: Network) -> str | None:
    if network.sdfg.number_of_nodes() != 1:
        return f"the SDFG has {network.sdfg.number_of_nodes()} states, and a network has one"
    called = [*network.inputs, *network.outputs, *network.weights, *network.constants, *network.mutations]
    missing = [array for array in called if array not in network.sdfg.arrays]
    return f"{missing[0]} is gone, which the network is called with" if missing else None


def _validity_fault(network: Network) -> str | None:
    try:
        network.sdfg.validate()
    except InvalidSDFGError as error:
        return f"the SDFG is not valid: {error}"
    except DacemlError as error:
        return f"the SDFG is not valid: {error.what}: {error.why}".rstrip(": ")
    return None


def canonical_fault(network: Network) -> str | None:
    """How a lowered network breaks the canonical form; None where it does not.

    At the top level there are maps, external calls and arrays. Every element has one writer, or a second one
    that reads it; none is added up into, and what is read has been written.
    """
    state = network.state
    nested = next((n for n in state.nodes() if isinstance(n, nodes.NestedSDFG)), None)
    if nested is not None:
        return f"nested SDFG {nested.label}: a kernel is one scope of maps and tasklets"
    scopes = state.scope_dict()
    top = [node for node in state.nodes() if scopes[node] is None]
    for node in top:
        if isinstance(node, nodes.Tasklet):
            return f"tasklet {node.label} is in no map, and a kernel is a map"
        if isinstance(node, ONNXNode) and not node.implementation:
            return f"{node.op_type} ({node.where()}) is neither a map nor a call"
    return _array_fault(network, [node for node in top if isinstance(node, nodes.AccessNode)])


def _array_fault(network: Network, top: Iterable[nodes.AccessNode]) -> str | None:
    state = network.state
    written: dict[str, list[Any]] = {}
    read: dict[str, None] = {}
    for access in top:
        desc = network.sdfg.arrays[access.data]
        writers = state.in_edges(access)
        if any(edge.data.wcr is not None for edge in writers):
            return f"{access.data} is added up into in memory: a reduction has its accumulator in a register"
        if state.out_degree(access):
            read[access.data] = None
        if isinstance(desc, dace.data.View) or not writers:
            continue
        parts = written.setdefault(access.data, [])
        for edge in writers:
            if _in_place(edge.src, access.data, state):
                continue
            subset: Any = edge.data.dst_subset
            if any(intersects(subset, part) for part in parts):
                return f"{access.data} is written more than once: every element has one writer"
            parts.append(subset)
    for array in read:
        desc = network.sdfg.arrays[array]
        made = desc.transient and not isinstance(desc, dace.data.View) and 0 not in desc.shape
        if made and array not in written:
            return f"{array} is read, and nothing writes it"
    return None


def _in_place(writer: nodes.Node, array: str, state: dace.SDFGState) -> bool:
    """Whether a loop writes where it reads."""
    if not isinstance(writer, nodes.MapExit):
        return False
    return any(edge.data.data == array for edge in state.in_edges(state.entry_node(writer)))

"""Which arrays gradients flow through: those that depend on an input of interest and reach an output."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import dace
from dace.sdfg import nodes
from dace.sdfg.utils import dfs_topological_sort

from daceml.autodiff.custom_gradients import given_gradients, is_custom
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.scalar import FLOATS
from daceml.sdfg.scopes import exit_of

COMPLEX = frozenset({dace.complex64, dace.complex128})
CONTINUOUS = FLOATS | COMPLEX
"""Element types of arrays that gradients flow through."""

# What they draw takes an operand's shape and type, and none of its numbers.
_DRAWN_LIKE = frozenset({"BernoulliLike", "Exponential", "RandomNormalLike", "RandomUniformLike"})


def steps(state: dace.SDFGState) -> list[nodes.Node]:
    """What computes something at the top level, in topological order: map entries and library nodes, and
    access nodes that are views.
    """
    scopes = state.scope_dict()
    return [
        n
        for n in dfs_topological_sort(state)
        if scopes[n] is None
        and (isinstance(n, nodes.EntryNode | nodes.CodeNode) or _viewed(state, n) is not None)
    ]


def reads(state: dace.SDFGState, step: nodes.Node) -> Iterator[str]:
    """Arrays that a step reads."""
    if isinstance(step, nodes.AccessNode):
        yield str(_viewed(state, step))
        return
    for edge in state.in_edges(step):
        if edge.data.data is not None:
            yield edge.data.data


def writes(state: dace.SDFGState, step: nodes.Node) -> Iterator[str]:
    """Arrays that a step writes."""
    if isinstance(step, nodes.AccessNode):
        yield step.data
        return
    end = exit_of(state, step) if isinstance(step, nodes.MapEntry) else step
    for edge in state.out_edges(end):
        if edge.data.data is not None:
            yield edge.data.data


def stops(step: nodes.Node) -> bool:
    """Whether a step is where gradients end, whatever it computes."""
    return getattr(step, "op_type", None) == "StopGradient"


def drawn_at_random(step: nodes.Node) -> bool:
    """Whether a step's result moves in jumps with the probabilities that it takes: their gradient is zero."""
    return getattr(step, "op_type", None) == "Bernoulli"


def viewed(state: dace.SDFGState, node: nodes.AccessNode) -> str:
    """The array that a view is another shape of."""
    found = _viewed(state, node)
    assert found is not None, f"{node.data} is not a view"
    return found


def _viewed(state: dace.SDFGState, node: nodes.Node) -> str | None:
    if not isinstance(node, nodes.AccessNode):
        return None
    for edge in state.in_edges(node):
        if edge.dst_conn == "views" and isinstance(edge.src, nodes.AccessNode):
            return edge.src.data
    return None


def _sources(sdfg: dace.SDFG, state: dace.SDFGState, step: nodes.Node) -> list[str]:
    """Arrays that a step may give a gradient to."""
    if is_custom(step):
        assert isinstance(step, ONNXNode)
        return [operand for operand, _ in given_gradients(step, sdfg, state)]
    if getattr(step, "op_type", None) in _DRAWN_LIKE:
        return []
    return list(reads(state, step))


def active_arrays(
    sdfg: dace.SDFG, state: dace.SDFGState, inputs: Collection[str], outputs: Collection[str]
) -> frozenset[str]:
    """Arrays of real or complex numbers that depend on an input and that an output depends on."""
    order = steps(state)
    forward = set(inputs)
    for step in order:
        if not stops(step) and not forward.isdisjoint(_sources(sdfg, state, step)):
            forward |= {a for a in writes(state, step) if sdfg.arrays[a].dtype in CONTINUOUS}
    backward = set(outputs)
    for step in reversed(order):
        if not stops(step) and not backward.isdisjoint(writes(state, step)):
            backward |= set(_sources(sdfg, state, step))
    return frozenset(a for a in forward & backward if sdfg.arrays[a].dtype in CONTINUOUS)


def outputs_reached(
    sdfg: dace.SDFG, state: dace.SDFGState, inputs: Collection[str], outputs: Sequence[str]
) -> dict[str, frozenset[str]]:
    """For each input the outputs that it has a way of gradients to: one of float arrays all along."""
    reached: dict[str, set[str]] = {output: {output} for output in outputs}
    for step in reversed(steps(state)):
        if stops(step):
            continue
        found = set[str]().union(*(reached.get(a, ()) for a in writes(state, step)))
        for source in _sources(sdfg, state, step) if found else ():
            if sdfg.arrays[source].dtype in CONTINUOUS:
                reached.setdefault(source, set()).update(found)
    return {i: frozenset(reached.get(i, ())) for i in inputs}

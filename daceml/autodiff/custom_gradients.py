"""Gradients that the model brings along: steps of `WithGradient`, and the cotangents that they wait for."""

from __future__ import annotations

import copy
from collections.abc import Callable

import dace
from dace.sdfg import nodes

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.operands import operands

RESULT = "tensors__0"


def is_custom(step: nodes.Node) -> bool:
    """Whether a step says itself what its gradients are."""
    return getattr(step, "op_type", None) == "WithGradient"


def awaits_cotangent(step: nodes.Node) -> bool:
    """Whether a step stands for a cotangent that differentiation gives."""
    return getattr(step, "op_type", None) == "CotangentOf"


def given_gradients(step: ONNXNode, sdfg: dace.SDFG, state: dace.SDFGState) -> list[tuple[str, str]]:
    """Operands of a function, each with the array of its gradient."""
    tensors = operands(step, state, sdfg).inputs["tensors"]
    assert isinstance(tensors, tuple)
    rest = tensors[1:]
    half = len(rest) // 2
    return list(zip(map(str, rest[:half]), map(str, rest[half:]), strict=True))


def use_cotangent(
    step: ONNXNode, cotangent: str, state: dace.SDFGState, node_of: Callable[[str], nodes.AccessNode]
) -> dict[str, str]:
    """Let everything that waits for the cotangent of a function's result read it. Mutates the state.

    Returns:
        array that stood for the cotangent -> the array that is it.
    """
    (given,) = state.in_edges_by_connector(step, RESULT)
    replaced: dict[str, str] = {}
    for edge in list(state.out_edges(given.src)):
        if not awaits_cotangent(edge.dst):
            continue
        for made in list(state.out_edges(edge.dst)):
            placeholder: nodes.AccessNode = made.dst
            redirect(state, placeholder, node_of(cotangent))
            replaced[placeholder.data] = cotangent
            state.remove_node(placeholder)
        state.remove_node(edge.dst)
    return replaced


def redirect(state: dace.SDFGState, old: nodes.AccessNode, new: nodes.AccessNode) -> None:
    """Let the readers of one array read another of the same shape and type. Mutates the state."""
    for edge in list(state.out_edges(old)):
        memlet = copy.deepcopy(edge.data)
        memlet.data = new.data
        state.add_edge(new, edge.src_conn, edge.dst, edge.dst_conn, memlet)
        state.remove_edge(edge)

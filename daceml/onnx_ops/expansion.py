"""Expansion on request: ONNX nodes become maps before the levels run, for transformations of the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from daceml.errors import NoImplementationError
from daceml.onnx_ops.lowering import apply, choose
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.builder import Builder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daceml.onnx_ops.registry import Kind
    from daceml.sdfg.network import Network


class HasNetwork(Protocol):
    """What a hook is called with."""

    @property
    def network(self) -> Network: ...


def expand_onnx_nodes(module: HasNetwork, *, kinds: Sequence[Kind] = ("alias", "native")) -> tuple[str, ...]:
    """Turn the ONNX nodes of a module under compilation into maps, in place; for hooks.

    Args:
        module: what a post_onnx hook is given.
        kinds: implementations to choose from.
    Returns:
        why each node stayed that has no such implementation; it gets another one when the hooks are through.
    """
    network = module.network
    builder = Builder(network.sdfg, network.state)
    refused: list[str] = []
    for node in [n for n in network.state.nodes() if isinstance(n, ONNXNode) and not n.implementation]:
        try:
            choice = choose(node, network, allowed=kinds)
        except NoImplementationError as error:
            refused.append(f"{node.where()}: {error.why}")
            continue
        apply(choice, node, network, builder)
    return tuple(refused)

"""Normalizations as loops, before it is chosen what is stored.

A normalization's result is its operand, shifted and scaled by what is stored anyway: numbers of a row or of a
channel. As one operator it could only run again as a whole, statistics included; as loops, its last one can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from daceml.autodiff.activity import steps, writes
from daceml.onnx_ops.domain.saving import saving
from daceml.onnx_ops.lowering import apply, choose
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.builder import Builder

if TYPE_CHECKING:
    from daceml.sdfg.network import Network

_NORMALIZATIONS = frozenset(
    {
        "LayerNormalization",
        *map(saving, ("BatchNormalization", "GroupNormalization", "InstanceNormalization")),
        *map(saving, ("LayerNormalization", "RMSNormalization")),
    }
)


def lower_normalizations(network: Network) -> int:
    """Make loops of the normalizations that keep statistics for their gradients. Mutates the network.

    Args:
        network: with gradients, before it is cut in two. Those that a vendor's kernel executes stay.
    Returns:
        how many there were.
    """
    builder = Builder(network.sdfg, network.state)
    count = 0
    for node in [n for n in steps(network.state) if isinstance(n, ONNXNode)]:
        if node.op_type not in _NORMALIZATIONS or node.implementation:
            continue
        if not {"Mean", "InvStdDev"}.intersection(node.out_connectors):
            continue
        written = tuple(writes(network.state, node))
        choice = choose(node, network)
        if choice.implementation.kind != "native" or any(0 in network.sdfg.arrays[a].shape for a in written):
            continue  # nothing writes what has no elements
        network.saved |= set(written)
        apply(choice, node, network, builder)
        count += 1
    return count

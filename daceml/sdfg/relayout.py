"""Weights that are not in row-major order: each is read once a call, by a map that writes it in row-major
order.

Every later stage takes row-major arrays for granted. A network in channels-last format thus pays one copy of
its weights; choosing layouts for the whole graph is another matter.
"""

from __future__ import annotations

from collections.abc import Mapping

from daceml.errors import UnsupportedProgramError
from daceml.sdfg.builder import Builder
from daceml.sdfg.network import Network
from daceml.sdfg.sizes import row_major


def relayout_weights(network: Network, strides: Mapping[str, tuple[int, ...]]) -> None:
    """Let a network read its weights as they lie in memory. Mutates the network.

    Args:
        strides: key in the module's state_dict -> strides in elements; only where they are not row-major.
    Raises:
        UnsupportedProgramError: a buffer that the network changes is among them.
    """
    builder = Builder(network.sdfg, network.state)
    for array, key in list(network.weights.items()):
        desc = network.sdfg.arrays[array]
        shape = tuple(int(n) for n in desc.shape)
        if key not in strides or _equivalent(shape, strides[key]):
            continue
        if array in network.mutations.values():
            raise UnsupportedProgramError(
                f"buffer {key!r} is changed by the module and not in row-major order",
                why=f"it has shape {shape} and strides {strides[key]}",
                fix="make it contiguous: module.to(memory_format=torch.contiguous_format)",
            )
        given = f"{array}_as_given"
        network.sdfg.add_array(given, shape, desc.dtype, strides=strides[key], transient=False)
        desc.transient = True
        del network.weights[array]
        network.weights[given] = key
        builder.emit_copy(f"relayout_{array}", given, array)


def _equivalent(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the strides are row-major ones where a dimension has more than one element."""
    return 0 in shape or all(
        n == 1 or s == r for n, s, r in zip(shape, strides, row_major(shape), strict=True)
    )

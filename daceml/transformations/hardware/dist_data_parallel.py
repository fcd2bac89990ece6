"""Gradients are averaged over all ranks: an all-reduce behind each bucket of weight gradients.

It changes a backward network that has gone through all levels, so that no pass has to know that another
rank's numbers come in. What is sent is taken over when it is complete, and what comes back goes into arrays
of its own: a gradient that something else needs, too, stays what it was.

Source: Rausch et al., DaCeML (ICS '22), section 5.5, transformation `DistDataParallel`; buckets as in
Li et al., PyTorch Distributed (VLDB '20), section 3.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from daceml.sdfg.access import add_access
from daceml.sdfg.all_reduce import add_all_reduce

if TYPE_CHECKING:
    import dace
    from dace.sdfg import nodes

    from daceml.sdfg.network import Network
    from daceml.transformations.hardware.gradient_buckets import Bucket


def average_gradients(
    network: Network, buckets: Sequence[Bucket], gradients: Mapping[str, str]
) -> dict[str, str]:
    """Add the all-reduces to an optimised backward network. Mutates it.

    Args:
        buckets: in the order in which they are sent, which is that of all ranks.
        gradients: parameter -> array with its gradient, an output or an input of the network. Parameters of a
            bucket that are not among them have no gradient here.
    Returns:
        parameter -> array with its averaged gradient, which the caller makes an output.
    """
    state = network.state
    complete = _complete(state)
    averaged: dict[str, str] = {}
    for number, bucket in enumerate(buckets):
        present = [parameter for parameter in bucket.parameters if parameter in gradients]
        for array in (gradients[parameter] for parameter in present):
            if array not in complete:  # an input that nothing else reads
                complete[array] = add_access(state, array)
        _, arrays = add_all_reduce(state, number, [complete[gradients[p]] for p in present])
        for parameter, array in zip(present, arrays, strict=True):
            averaged[parameter] = array
            network.absorb(array, (gradients[parameter],))
            if gradients[parameter] in network.scalars:
                network.scalars |= {array}
    return averaged


def _complete(state: dace.SDFGState) -> dict[str, nodes.AccessNode]:
    """Array -> the access node, outside all scopes, in which it is complete."""
    scopes = state.scope_dict()
    found: dict[str, nodes.AccessNode] = {}
    for node in state.data_nodes():
        if scopes[node] is None and (state.in_degree(node) or node.data not in found):
            found[node.data] = node
    return found

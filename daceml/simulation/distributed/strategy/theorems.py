"""When fusing two neighbours of a data-parallel step makes its end come sooner: dPRO's three theorems.

Of a chain, computation n ends a tensor, whose sum over devices takes a while; computations follow each other
on the device, sums on the network. `p` is a computation, `q` the sum of its tensor; the question is when both
of number n are over, T = max(end of p, end of q).

Source: Hu et al., dPRO (MLSys '22), Theorems 1 to 3.
"""

from __future__ import annotations


def fuse_computations(
    *, previous_us: float, this_us: float, fused_us: float, previous_sync_us: float
) -> bool:
    """Theorem 1: fuse two computations if that saves at least as long as the first one's tensor is sent.

    Fused, the first tensor can only be sent when both are over, so that none of its sum is hidden behind the
    second computation.

    Args:
        previous_us, this_us: of the two computations; fused_us: of the one that takes their place.
        previous_sync_us: of the first one's tensor; 0 where it has none.
    """
    return previous_sync_us <= previous_us + this_us - fused_us


def fuse_tensors(
    *, previous_sync_end_us: float, this_end_us: float, fused_sync_us: float, this_sync_us: float
) -> bool:
    """Theorem 2: fuse two tensors if the second one waits longer for the network than the joint sum costs.

    Args:
        previous_sync_end_us: when the sum of the first tensor ends, if they are not fused.
        this_end_us: when the computation of the second one ends.
        fused_sync_us: of both together; this_sync_us: of the second one; each in its best number of parts.
    """
    return previous_sync_end_us > this_end_us + fused_sync_us - this_sync_us


def fuse_both(*, computations: bool, tensors: bool) -> bool:
    """Theorem 3: where either is fused, so are both.

    Two computations that became one end their tensors at one moment, so that a joint sum begins no later; two
    tensors that are sent together wait for the second computation anyway. It holds where the joint sum takes
    no longer than the two, and the fused computation no longer than both.
    """
    return computations or tensors

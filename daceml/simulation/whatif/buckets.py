"""The buckets in which data-parallel training sends gradients."""

from __future__ import annotations

import math

from daceml.simulation.whatif.gradients import Bucket, Gradient, Gradients

# torch.nn.parallel.DistributedDataParallel: `bucket_cap_mb`; torch.distributed: _DEFAULT_FIRST_BUCKET_BYTES
FIRST_BYTES = 2.0**20
LIMIT_BYTES = 25 * 2.0**20


def buckets_of(
    gradients: Gradients, *, first_bytes: float = FIRST_BYTES, limit_bytes: float = LIMIT_BYTES
) -> tuple[Bucket, ...]:
    """In the order in which they are sent: those that a run had, or else those that torch would make.

    Gradients enter in the order in which they become ready, or where that is not known in the reverse order
    of registration, into one open bucket of each element type. One that has reached its limit is closed.

    Args:
        first_bytes: limit of the first bucket, which is small so that sending begins early.
    Source: compute_bucket_assignment_by_size in torch/csrc/distributed/c10d/reducer.cpp.
    """
    if gradients.sent is not None:
        return gradients.sent
    if not gradients.rows:
        return _pieces(gradients.total_bytes, first_bytes, limit_bytes)
    closed: list[Bucket] = []
    opened: dict[str, list[Gradient]] = {}
    limits: dict[str, float] = {}
    for gradient in in_ready_order(gradients.rows):
        bucket = opened.setdefault(gradient.element, [])
        bucket.append(gradient)
        if sum(row.size_bytes for row in bucket) >= limits.get(gradient.element, first_bytes):
            closed.append(_bucket(opened.pop(gradient.element)))
            limits[gradient.element] = limit_bytes
    return (*closed, *map(_bucket, opened.values()))


def in_ready_order(rows: tuple[Gradient, ...]) -> list[Gradient]:
    """The first one that is ready first; reverse registration where not every one was seen."""
    last_first = list(reversed(rows))
    if all(row.ready is not None for row in rows):
        last_first.sort(key=lambda row: -1 if row.ready is None else row.ready)
    return last_first


def _bucket(rows: list[Gradient]) -> Bucket:
    layers = dict.fromkeys(row.layer for row in rows)
    return Bucket(size_bytes=sum(row.size_bytes for row in rows), layers=tuple(layers))


def _pieces(total_bytes: float, first_bytes: float, limit_bytes: float) -> tuple[Bucket, ...]:
    """Of gradients whose sizes nobody knows, as if each could be cut anywhere."""
    first = min(first_bytes, total_bytes)
    rest = total_bytes - first
    if rest <= 0:
        return (Bucket(size_bytes=first),)
    if math.isinf(limit_bytes):
        return (Bucket(size_bytes=first), Bucket(size_bytes=rest))
    whole = int(rest // limit_bytes)
    left = rest - whole * limit_bytes
    sizes = [first, *[limit_bytes] * whole, *([left] if left > 0 else [])]
    return tuple(Bucket(size_bytes=size) for size in sizes)

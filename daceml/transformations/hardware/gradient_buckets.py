"""Which gradients go into one all-reduce: those that are ready one after the other, up to a size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BucketLimits:
    """How large buckets are.

    Attributes:
        first_bytes: a bucket that has reached this is closed, the first one of each element type: something
            can be sent soon.
        limit_bytes: the same, of all others.
    Source: `_DEFAULT_FIRST_BUCKET_BYTES` of torch.distributed, `bucket_cap_mb` of DistributedDataParallel.
    """

    first_bytes: int = 2**20
    limit_bytes: int = 25 * 2**20


@dataclass(frozen=True, kw_only=True)
class Sendable:
    """The gradient of a parameter, as far as buckets are concerned.

    Attributes:
        parameter: its name.
        dtype: such as "float32".
    """

    parameter: str
    size_bytes: int
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """Gradients that are averaged together.

    Attributes:
        parameters: in the order in which they lie in the bucket.
        closed: why it holds no more.
    """

    parameters: tuple[str, ...]
    size_bytes: int
    dtype: str
    closed: str


def gradient_buckets(ready: Iterable[Sendable], limits: BucketLimits) -> tuple[Bucket, ...]:
    """The buckets in the order in which they are full; pure.

    Args:
        ready: gradients in the order in which they are complete.
    Source: compute_bucket_assignment_by_size in torch/csrc/distributed/c10d/reducer.cpp.
    """
    closed: list[Bucket] = []
    opened: dict[str, list[Sendable]] = {}
    seen: set[str] = set()
    for gradient in ready:
        dtype = gradient.dtype
        held = opened.setdefault(dtype, [])
        held.append(gradient)
        limit = limits.limit_bytes if dtype in seen else limits.first_bytes
        if sum(g.size_bytes for g in held) >= limit:
            closed.append(_bucket(opened.pop(dtype), f"it has reached {limit} bytes"))
            seen.add(dtype)
    return (*closed, *(_bucket(held, "no more gradients follow") for held in opened.values()))


def _bucket(held: list[Sendable], why: str) -> Bucket:
    return Bucket(
        parameters=tuple(g.parameter for g in held),
        size_bytes=sum(g.size_bytes for g in held),
        dtype=held[0].dtype,
        closed=why,
    )

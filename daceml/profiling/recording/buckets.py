"""The buckets in which data-parallel training sends gradients: those of torch, or by its rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from daceml.profiling.recording.gradients import GradientRecord

if TYPE_CHECKING:
    from torch import nn

# torch.nn.parallel.DistributedDataParallel, `bucket_cap_mb` and torch.distributed._DEFAULT_FIRST_BUCKET_BYTES
FIRST_BYTES = 2**20
LIMIT_BYTES = 25 * 2**20


def bucket_records(model: nn.Module, gradients: Sequence[GradientRecord]) -> dict[str, Any]:
    """The buckets, in the order in which they are sent.

    Returns:
        `source` is "reducer" where DistributedDataParallel has told them, "program" where compiled programs
        send them, else "rule": what DistributedDataParallel would do;
        `buckets` has `size_bytes` and `parameters` of each. Names of parameters are those of `gradients`.
    """
    from torch.nn.parallel import DistributedDataParallel

    for name, module in model.named_modules():
        if isinstance(module, DistributedDataParallel):
            prefix = f"{name}.module." if name else "module."
            own = [g for g in gradients if g.name.startswith(prefix)]
            ignored = {prefix + ignored for ignored in module.parameters_to_ignore}
            found = reducer_buckets(
                module._get_ddp_logging_data(),  # pyright: ignore[reportPrivateUsage]
                [g for g in own if g.name not in ignored],
            )
            return {"source": "reducer", "module": name, "buckets": found}
        sent = getattr(module, "sent_buckets", None)
        if sent is not None:
            prefix = f"{name}.module." if name else "module."
            buckets = [
                {"size_bytes": b.size_bytes, "parameters": [prefix + key for key in b.parameters]}
                for b in sent()
            ]
            return {"source": "program", "module": name, "buckets": buckets}
    return {"source": "rule", "module": None, "buckets": rule_buckets(gradients)}


def reducer_buckets(told: dict[str, Any], gradients: Sequence[GradientRecord]) -> list[dict[str, Any]]:
    """What DistributedDataParallel's logging data say; pure.

    After the first backward pass it makes its buckets anew, in the order in which gradients became ready. Of
    those from before, it tells sizes only: they are filled in the reverse order of registration.
    """
    indices = str(told.get("rebuilt_per_bucket_param_indices", ""))
    if indices:
        rows = [[int(i) for i in row.split()] for row in indices.split(",")]
        sizes = _numbers(str(told["rebuilt_bucket_sizes"]))
        return [
            {"size_bytes": size, "parameters": [gradients[i].name for i in row]}
            for size, row in zip(sizes, rows, strict=True)
        ]
    waiting = list(gradients)
    found: list[dict[str, Any]] = []
    for size in _numbers(str(told.get("bucket_sizes", ""))):
        names: list[str] = []
        filled = 0
        while waiting and filled < size:
            gradient = waiting.pop()
            names.append(gradient.name)
            filled += gradient.size_bytes
        found.append({"size_bytes": size, "parameters": names if filled == size else None})
    return found


def rule_buckets(
    gradients: Iterable[GradientRecord], first_bytes: int = FIRST_BYTES, limit_bytes: int = LIMIT_BYTES
) -> list[dict[str, Any]]:
    """The buckets that DistributedDataParallel would make after its first backward pass; pure.

    Gradients enter in the order in which they become ready, or where that is not known in the reverse order
    of registration, into one open bucket for each element type. One that has reached its limit is closed.

    Source: compute_bucket_assignment_by_size in torch/csrc/distributed/c10d/reducer.cpp.
    """
    in_order = list(reversed(list(gradients)))
    if all(g.ready is not None for g in in_order):
        in_order.sort(key=lambda g: -1 if g.ready is None else g.ready)
    closed: list[dict[str, Any]] = []
    opened: dict[str, dict[str, Any]] = {}
    limits: dict[str, int] = {}
    for gradient in in_order:
        bucket = opened.setdefault(gradient.dtype, {"size_bytes": 0, "parameters": []})
        bucket["size_bytes"] += gradient.size_bytes
        bucket["parameters"].append(gradient.name)
        if bucket["size_bytes"] >= limits.get(gradient.dtype, first_bytes):
            closed.append(opened.pop(gradient.dtype))
            limits[gradient.dtype] = limit_bytes
    return [*closed, *opened.values()]


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip()]

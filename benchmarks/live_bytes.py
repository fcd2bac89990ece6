"""The high-water mark of live bytes in torch's CPU allocator.

torch's profiler reports every allocation and release of that allocator, whoever asks for it: eager operators,
generated programs, their workspaces. Bytes that are alive before it starts are counted by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def high_water_bytes(step: Callable[[], object], held: Iterable[torch.Tensor]) -> int:
    """Most bytes alive at once while `step` runs, together with what is alive before.

    Args:
        held: tensors that live before, such as parameters and inputs; storages are counted once.
    """
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    alive = most = 0
    for amount in changes(recorded):
        alive += amount
        most = max(most, alive)
    return sum(storages.values()) + most


def changes(recorded: profile) -> list[int]:
    """Bytes of each allocation, negative for a release, in the order of time."""
    inner = recorded.profiler
    assert inner is not None, "the profiler has run"
    assert inner.kineto_results is not None, "the profiler has run"
    events: list[Any] = [e for e in inner.kineto_results.events() if e.name() == "[memory]"]
    return [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]

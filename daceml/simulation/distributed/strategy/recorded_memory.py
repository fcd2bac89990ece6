"""What a recorded device holds in a step, as far as the events of its allocator tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from daceml.profiling.trace import Trace
from daceml.simulation.distributed.strategy.training_step import Memory

# Optimizers -> bytes of their states for each byte of the parameters; of others none.
STATES = {
    "Adam": 2.0,
    "AdamW": 2.0,
    "NAdam": 2.0,
    "RAdam": 2.0,
    "Adamax": 2.0,
    "RMSprop": 1.0,
    "Adagrad": 1.0,
}


def recorded_memory(trace: Trace, gradient_bytes: float, *, context_bytes: float = 0.0) -> Memory | None:
    """Bytes of the device at the peak of the recorded steps; None where the trace has no such events.

    Parameters take as much as their gradients, and states of the optimizer what `STATES` says. What else is
    there at the lowest moment stays (`other`); what comes on top until the peak is kept for backward. On
    processors torch counts from the begin of the recording: what rises there is gradients, which come anew
    in each step, and what is kept. What enters the blocks of a model is in no trace: recomputation is taken
    to save nothing. What the caching allocator reserves beyond its blocks stays, too.

    Args:
        context_bytes: that a process takes of a GPU before any tensor; it stays (`other`).
    """
    events = trace.memory
    devices = events.device[events.device >= 0]
    own = events.device == (devices[0] if len(devices) else -1)
    held = events.allocated_bytes[own]
    held = held[np.isfinite(held)]
    if not len(held) or held.max() <= 0:
        return None
    states = gradient_bytes * STATES.get(_optimizer(trace.header), 0.0)
    low, high = float(held.min()), float(held.max())
    if len(devices):
        stays = 2 * gradient_bytes + states
        other = max(0.0, low - stays)
        activations = max(0.0, high - stays - other)
        reserved = events.reserved_bytes[own]
        reserved = reserved[np.isfinite(reserved)]
        other += max(0.0, float(reserved.max(initial=0.0)) - high) + context_bytes
    else:
        other, activations = 0.0, max(0.0, high - low - gradient_bytes)
    return Memory(
        parameters=gradient_bytes, gradients=gradient_bytes, optimizer=states, activations=activations,
        boundaries=activations, other=other,
    )  # fmt: skip


def _optimizer(header: Mapping[str, Any]) -> str:
    told = header.get("daceml") or {}
    return str((told.get("optimizer") or {}).get("name", ""))

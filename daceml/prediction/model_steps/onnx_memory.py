"""What the tensors of a graph hold, by who reads them last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from daceml.operations.database.records import Operand
from daceml.prediction.live_bytes import BLOCK_BYTES
from daceml.prediction.model_step import StepMemory

Node = tuple[Sequence[str], Mapping[str, Operand]]
"""Names that a node reads, and what it writes."""


def step_memory(
    given: Mapping[str, Operand],
    nodes: Sequence[Node],
    *,
    views: Mapping[str, str],
    weights: Mapping[str, Operand],
    trained: Mapping[str, Operand],
    optimizer_bytes: int = 0,
) -> StepMemory:
    """The bytes of a call, or of a training step.

    A call frees what nobody reads any more, except what it was given and what it returns. A training step
    keeps all results until the backward phase has passed the nodes that wrote them; gradients live from
    their first reader to the node that wrote what they belong to, those of weights to the end.

    Args:
        given: inputs and weights.
        views: name of a result -> that in whose memory it lies.
        trained: weights with gradients; none in inference.
    """
    bytes_of = {name: _block(one) for name, one in given.items()}
    held = sum(bytes_of.values())
    for _, writes in nodes:
        bytes_of |= {name: 0 if name in views else _block(one) for name, one in writes.items()}
    gradients = sum(bytes_of[name] for name in trained)
    weight_bytes = sum(bytes_of[name] for name in weights)
    kept = sum(bytes_of.values()) - held
    if trained:
        saved, peak = kept, _training_peak(held + optimizer_bytes + kept, nodes, bytes_of, views, trained)
    else:
        saved, peak = _call_peak(held, nodes, bytes_of, views, given)
    return StepMemory(
        parameters=weight_bytes,
        buffers=0,
        gradients=gradients,
        optimizer=optimizer_bytes,
        saved=held - weight_bytes + saved,
        peak=max(peak, held + gradients + optimizer_bytes),
    )


def _call_peak(
    held: int,
    nodes: Sequence[Node],
    bytes_of: Mapping[str, int],
    views: Mapping[str, str],
    given: Mapping[str, Operand],
) -> tuple[int, int]:
    """What is left at the end besides what was given, and the most at any moment."""
    last = {_base(name, views): place for place, (reads, _) in enumerate(nodes) for name in reads}
    now = peak = held
    for place, (reads, writes) in enumerate(nodes):
        now += sum(bytes_of[name] for name in writes)
        peak = max(peak, now)
        for name in {_base(name, views) for name in reads}:
            if last[name] == place and name not in given:
                now -= bytes_of[name]
    return now - held, peak


def _training_peak(
    now: int,
    nodes: Sequence[Node],
    bytes_of: Mapping[str, int],
    views: Mapping[str, str],
    trained: Mapping[str, Operand],
) -> int:
    """From the end of the forward phase on, backwards."""
    peak = now
    written = {_base(name, views) for _, writes in nodes for name in writes}
    gradients: set[str] = set()
    for reads, writes in reversed(nodes):
        for name in {_base(name, views) for name in reads}:
            if name not in gradients and (name in written or name in trained):
                gradients.add(name)
                now += bytes_of[name]
        peak = max(peak, now)
        for name in writes:
            now -= bytes_of[name] * (2 if name in gradients else 1)
    return peak


def _base(name: str, views: Mapping[str, str]) -> str:
    while name in views:
        name = views[name]
    return name


def _block(one: Operand) -> int:
    return -(-one.size_bytes // BLOCK_BYTES) * BLOCK_BYTES

"""What the page shows of an exploration: each variant as a point, and as a row."""

from __future__ import annotations

from typing import Any

from daceml.exploration.results import Exploration, Row


def variants_view(exploration: Exploration) -> dict[str, Any]:
    """All variants, as plain data."""
    found = exploration
    return {
        "kind": "variants",
        "title": found.model,
        "call": "forward and backward pass" if found.training else "inference",
        "inputs": found.inputs,
        "machine": f"{found.machine}; {found.disturbance}" if found.disturbance else found.machine,
        "objective": found.objective,
        "complete": found.complete,
        "compiled": found.compiled,
        "spent_s": found.spent_s,
        "mean_error": found.mean_error,
        "winner": found.winner,
        "rows": [_row(row) for row in found.rows],
    }


def _row(row: Row) -> dict[str, Any]:
    seen = row.measured
    return {
        "title": row.variant.title,
        "device": row.variant.device or "this machine",
        "outcome": row.outcome,
        "promises": list(row.variant.promises),
        "predicted_ms": row.predicted_ms,
        "low_ms": row.low_ms,
        "high_ms": row.high_ms,
        "measured_ms": None if seen is None else seen.ms,
        "measured_low_ms": None if seen is None else seen.low_ms,
        "measured_high_ms": None if seen is None else seen.high_ms,
        "error": row.error,
        "disagrees": row.disagrees,
        "memory_bytes": row.memory_bytes,
        "moved_bytes": row.moved_bytes,
        "kernels": row.kernels,
        "usd_per_million": row.usd_per_million,
        "why": row.why,
    }

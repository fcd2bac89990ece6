"""An exploration that is over: a variant that was measured, one that was predicted, one that was refused."""

from __future__ import annotations

from daceml.exploration.results import Exploration, Row, Times
from daceml.tuning.variant import Variant


def explored() -> Exploration:
    """The predicted variant won."""
    times = Times(ms=2.0, low_ms=1.9, high_ms=2.1, ratio=1.0, ratio_low=0.95, ratio_high=1.05, rounds=9)
    rows = (
        Row(
            variant=Variant(), outcome="standard recipe", predicted_ms=2.2, low_ms=2.0, high_ms=2.4,
            measured=times, memory_bytes=9_000,
        ),
        Row(
            variant=Variant(freeze=True), outcome="predicted", predicted_ms=1.5, low_ms=1.0, high_ms=2.0,
            memory_bytes=8_000,
        ),
        Row(variant=Variant(without=("fuse_maps",)), outcome="refused", why="a pass refuses"),
    )  # fmt: skip
    return Exploration(
        model="Net", inputs="x: float32 (8, 16)", training=False, objective="time", machine="this", seed=0,
        budget_s=60, spent_s=3.0, complete=True, rows=rows, winner=1, compiled=1, predicted=2,
    )  # fmt: skip

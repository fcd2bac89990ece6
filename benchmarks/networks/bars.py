"""The bars of networks, from rows: what was promised, and what was seen of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bars import Bar
from benchmarks.peers import Mode
from benchmarks.rounds import Measurement
from benchmarks.speed import OURS, Comparison, default_bar, geometric_mean, mean_bar, slower_bar

COMPILE_SHARE = 0.6  # of torch.compile's cold forward and backward
PEAK_SHARE = 0.8  # of eager's, geometric mean


@dataclass(frozen=True, kw_only=True)
class Speeds:
    """What is asked of times in one mode, as how many times faster.

    Attributes:
        mean: than the best peer, geometric mean.
        slowest: no network's interval lies wholly below.
        over_default: than eager, both with the machine's own allocator.
    """

    mean: float
    slowest: float
    over_default: float


SPEEDS: dict[Mode, Speeds] = {
    "inference": Speeds(mean=1.0, slowest=0.9, over_default=2.0),
    "training": Speeds(mean=1.15, slowest=0.95, over_default=1.4),
}
# (deep network, the one it is compared with, how many times its compile time at most)
DEPTHS = (("bert_encoder:24", "bert_encoder:1", 1.5), ("resnet152", "resnet50", 3.5))


def comparison(row: dict[str, Any]) -> Comparison:
    """The times of a row; a part that failed is a measurement without rounds."""
    data = row.get("times", {})
    measurement = Measurement.from_data(data) if "names" in data else Measurement(names=(OURS,), rounds=())
    return Comparison(case=f"{row['model']}, {row['mode']}", measurement=measurement)


def bars_of(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """Every bar that concerns the parts and modes that were asked for."""
    bars: list[Bar] = []
    for mode, asked in SPEEDS.items():
        here = [row for row in rows if row["mode"] == mode]
        what = f"networks, {mode}"
        if timed := [comparison(row) for row in here if "times" in row]:
            bars += [
                mean_bar(what, timed, asked.mean),
                slower_bar(what, timed, asked.slowest),
                default_bar(what, timed, asked.over_default),
            ]
            if frozen := [found for c in timed if (found := c.frozen) is not None]:
                bars += [
                    mean_bar(f"{what}, weights frozen", frozen, asked.mean),
                    slower_bar(f"{what}, weights frozen", frozen, asked.slowest),
                ]
        if measured := [row for row in here if "memory" in row]:
            bars.append(peak_bar(what, measured))
        if mode == "training":
            bars += [compile_bar(row) for row in here if "compile" in row]
        bars += [parity_bar(row) for row in here if "parity" in row]
    return bars


def peak_bar(what: str, rows: Sequence[dict[str, Any]]) -> Bar:
    """A bar on the geometric mean of peaks over eager's."""
    failed = [row["model"] for row in rows if "failure" in row["memory"]]
    shares = [row["memory"][OURS] / row["memory"]["eager"] for row in rows if row["model"] not in failed]
    return Bar(
        name=f"{what}, geometric mean of the peak memory of a step over eager's",
        figure=None if failed else geometric_mean(shares),
        limit=PEAK_SHARE,
        note=f"not measured: {', '.join(failed)}" if failed else f"n={len(shares)}",
    )


def compile_bar(row: dict[str, Any]) -> Bar:
    """A bar on the cold compile of forward and backward over torch.compile's."""
    seen = row["compile"]
    failure = seen.get("failure")
    ours_s, peer_s = (None, None) if failure else (seen[OURS]["cold_s"], seen["inductor"]["cold_s"])
    return Bar(
        name=f"{row['model']}, cold compile of a training step over torch.compile's",
        figure=None if ours_s is None or peer_s is None else ours_s / peer_s,
        limit=COMPILE_SHARE,
        note=failure or f"{ours_s:.1f} s over {peer_s:.1f} s",
    )


def parity_bar(row: dict[str, Any]) -> Bar:
    """A bar on figures outside the limits of `benchmarks.parity`."""
    seen = row["parity"]
    outside = seen.get("outside", [])
    return Bar(
        name=f"{row['model']}, {row['mode']}: figures outside the limits of parity",
        figure=None if "failure" in seen else len(outside),
        limit=0,
        note=seen.get("failure", "; ".join(outside)),
    )


def depth_bars(seconds: dict[str, float | None]) -> list[Bar]:
    """Bars on cold compiles of deep networks over shallow ones; absent or None: not measured."""
    bars: list[Bar] = []
    for deep, shallow, limit in DEPTHS:
        deep_s, shallow_s = seconds.get(deep), seconds.get(shallow)
        known = deep_s is not None and shallow_s is not None
        bars.append(
            Bar(
                name=f"cold compile of a training step of {deep} over {shallow}",
                figure=deep_s / shallow_s if deep_s is not None and shallow_s is not None else None,
                limit=limit,
                note=f"{deep_s:.1f} s over {shallow_s:.1f} s" if known else "one of them failed",
            )
        )
    return bars

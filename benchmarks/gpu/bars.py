"""The bars of the suite, from its rows: what was promised, and what was seen of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.bars import Bar
from benchmarks.gpu.timing import OURS, best_peer
from benchmarks.rounds import Measurement
from benchmarks.speed import speedup_bar
from daceml.interval import Median

Row = dict[str, Any]

COPY_SHARE = 0.85  # of a copy's bandwidth, for blocks
MISH = {"inference": 3.2, "training": 2.4}  # times as fast as eager's spelled-out operators
GUIDED = 1.33  # times as fast as the faster of the ways with cuDNN's convolution
BERT_LAYER = 1.05  # times as fast as the best peer, in bfloat16
NETWORKS_MEAN = 1.1  # times as fast as torch.compile's default, geometric mean
NETWORKS_SLOWEST = 0.9  # no network's interval lies wholly below
HOST_US = 10.0
# Kinds of cases whose values are compared.
COMPARED = ("check", "correctness", "block", "values", "small", "guided")
BY_CUDNN = ("eager", "automatic")  # ways that do what the guided kernel does


def bars_of(rows: Sequence[Row]) -> list[Bar]:
    """Every bar that concerns rows of these kinds; in emulation values count, and times do not."""
    bars: list[Bar] = []
    for row in rows:
        bars += [right_bar(row)] if row["kind"] in COMPARED else []
        if row["emulated"]:
            continue
        if row["kind"] in ("block", "replays"):
            bars.append(copy_bar(row))
            bars += [mish_bar(row)] if row["name"] == "mish" else []
        elif row["kind"] == "guided":
            bars.append(guided_bar(row))
        elif row["kind"] == "overhead":
            bars.append(host_bar(row))
        elif row["kind"] == "times" and (row["name"], row["precision"]) == ("bert", "bf16"):
            bars.append(layer_bar(row))
    timed = [row for row in rows if row["kind"] == "times" and not row["emulated"]]
    for mode in ("inference", "training"):
        if here := [row for row in timed if row["mode"] == mode and row["precision"] != "bf16"]:
            bars += network_bars(mode, here)
    return bars


def right_bar(row: Row) -> Bar:
    """A bar on what is not as it has to be."""
    found = row.get("outside", [])
    return Bar(
        name=f"{row['case']}: {'faults' if row['kind'] == 'check' else 'figures outside the limits'}",
        figure=None if "failure" in row else len(found),
        limit=0,
        note=row.get("failure") or "; ".join(found[:3]),
    )


def copy_bar(row: Row) -> Bar:
    """A bar on how many times longer than a copy of as many bytes a block takes."""
    share = copy_share(row)
    return Bar(
        name=f"block {row['case']}, time over that of a copy of as many bytes",
        figure=None if share is None else 1.0 / share.value,
        limit=1.0 / COPY_SHARE,
        note=row.get("failure", "") if share is None else f"{100 * share.value:.0f} % of a copy's bandwidth",
    )


def copy_share(row: Row) -> Median | None:
    """The bandwidth of a block over that of a copy, round by round; None where there is none."""
    measurement = measurement_of(row, "replays")
    if measurement is None or "copy" not in measurement.names:
        return None
    ratio = measurement.ratio("copy", OURS)
    scale = row["large_tensors"] / 2  # a copy reads one tensor and writes one
    return Median(
        value=ratio.value * scale,
        low=ratio.low * scale,
        high=ratio.high * scale,
        n=ratio.n,
        confidence=ratio.confidence,
    )


def mish_bar(row: Row) -> Bar:
    """A bar on Mish over eager's three operators."""
    return _faster_bar(row, f"block {row['case']}", "replays", ("eager",), MISH[row["mode"]])


def guided_bar(row: Row) -> Bar:
    """A bar on the guided kernel over cuDNN's convolution and what follows it."""
    return _faster_bar(row, "mbconv, guided fused convolution", "replays", BY_CUDNN, GUIDED)


def layer_bar(row: Row) -> Bar:
    """A bar on a layer of BERT-large over its best peer."""
    measurement = measurement_of(row, "replays")
    best = None if measurement is None else best_peer(measurement)
    return _faster_bar(
        row, f"BERT-large layer, {row['mode']}, bf16", "replays", (best or "eager",), BERT_LAYER
    )


def host_bar(row: Row) -> Bar:
    """A bar on microseconds of the host."""
    seen = row.get("overhead_us")
    return Bar(
        name="host overhead of a call with CUDA graphs besides input copies",
        figure=None if seen is None else seen["median"],
        limit=HOST_US,
        unit="us",
        note=row.get("failure", "")
        if seen is None
        else f"[{seen['low']:.1f}, {seen['high']:.1f}] n={seen['n']}",
    )


def network_bars(mode: str, rows: Sequence[Row]) -> list[Bar]:
    """Bars on calls of networks over those of torch.compile: their geometric mean, and the slowest."""
    ratios = {row["case"]: speedup(row, "calls", ("inductor",)) for row in rows}
    unmeasured = [case for case, ratio in ratios.items() if ratio is None]
    known = {case: ratio for case, ratio in ratios.items() if ratio is not None}
    slower = [case for case, ratio in known.items() if ratio.high < NETWORKS_SLOWEST]
    mean = speedup_bar(
        f"networks, {mode}, geometric mean of the time over torch.compile's",
        [ratio.value for ratio in known.values()],
        NETWORKS_MEAN,
        unmeasured,
    )
    slowest = Bar(
        name=f"networks, {mode}, whose interval lies wholly below {NETWORKS_SLOWEST:g} times torch.compile",
        figure=None if unmeasured else len(slower),
        limit=0,
        note=", ".join(unmeasured or slower),
    )
    return [mean, slowest]


def measurement_of(row: Row, part: str) -> Measurement | None:
    """The rounds of a part of a row that has daceml in it; None where it failed or is absent."""
    data = row.get(part)
    if data is None or OURS not in data["names"] or not data["rounds"]:
        return None
    return Measurement.from_data(data)


def speedup(row: Row, part: str, peers: Sequence[str]) -> Median | None:
    """How many times as fast as the fastest of these peers; None where one of the two is missing."""
    measurement = measurement_of(row, part)
    if measurement is None or not measurement.measured:
        return None
    there = [name for name in peers if name in measurement.names]
    if not there:
        return None
    best = min(there, key=lambda name: measurement.duration_us(name).value)
    return measurement.ratio(best, OURS)


def _faster_bar(row: Row, name: str, part: str, peers: Sequence[str], at_least: float) -> Bar:
    ratio = speedup(row, part, peers)
    missing = row.get(part, {}).get("missing", {})
    why = row.get("failure") or "; ".join(f"{way}: {reason}" for way, reason in missing.items())
    return Bar(
        name=f"{name}, time over that of {' or '.join(peers)}",
        figure=None if ratio is None else 1.0 / ratio.value,
        limit=1.0 / at_least,
        note=why if ratio is None else f"{ratio} times as fast, at least {at_least:g}",
    )

"""Traces of data-parallel training on processors, written by hand: two layers, a bucket for each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from daceml.profiling.kineto import trace_of
from daceml.profiling.trace import Trace
from tests.support.recorded_ranks import RankRecording

MB = 1_000_000
# (layer, bytes of its weight, forward and backward in microseconds), as the backward pass comes by them
LAYERS = (("last", 4 * MB, 1000.0, 3000.0), ("first", 2 * MB, 2000.0, 4000.0))
UPDATE_US = 500.0
ASKING_US = 2.0  # what the operator takes that begins a sum
LATENCY_US, US_PER_MB = 200.0, 1000.0


def sum_us(size_bytes: float) -> float:
    """What the sum of so much takes in these runs."""
    return LATENCY_US + US_PER_MB * size_bytes / MB


def step_us(factor: float = 1.0) -> float:
    """By hand: the sum of the last layer's gradient hides behind the first layer's backward pass, mostly."""
    forward = factor * sum(layer[2] for layer in LAYERS)
    last_ready = forward + factor * LAYERS[0][3]
    ready = last_ready + factor * LAYERS[1][3]
    last_sent = last_ready + sum_us(LAYERS[0][1])
    return max(ready, last_sent) + sum_us(LAYERS[1][1]) + UPDATE_US


def header(*, wrapped: bool = True, **more: Any) -> dict[str, Any]:
    """What `daceml.profile` writes of this model."""
    prefix = "module." if wrapped else ""
    names = [f"{prefix}{layer}.weight" for layer, *_ in LAYERS]
    told = {
        "rank": {"host": "one"},
        "gradients": [
            {"name": name, "layer": prefix + layer, "size_bytes": size, "dtype": "float32", "ready": place}
            for place, (name, (layer, size, _, _)) in enumerate(zip(names, LAYERS, strict=True))
        ],
        "buckets": {
            "source": "reducer",
            "module": "",
            "buckets": [
                {"size_bytes": layer[1], "parameters": [name]}
                for name, layer in zip(names, LAYERS, strict=True)
            ],
        },
    }
    return {"daceml": {**told, **more}}


def documents(factors: Sequence[Sequence[float]] = ((1.0, 1.0),) * 3) -> list[dict[str, Any]]:
    """Files of all ranks.

    Args:
        factors: of each step, how many times as long each rank computes.
    """
    ranks = len(factors[0])
    recordings = [RankRecording(rank, ranks) for rank in range(ranks)]
    clock_us = 0.0
    for number, step in enumerate(factors):
        clock_us = _step(recordings, number, step, clock_us)
    return [
        {
            "distributedInfo": {"rank": one.rank, "world_size": ranks, "backend": "gloo"},
            **header(),
            "traceEvents": one.events,
        }
        for one in recordings
    ]


def traces(factors: Sequence[Sequence[float]] = ((1.0, 1.0),) * 3) -> list[Trace]:
    """As the reader understands them."""
    return [
        trace_of(json.dumps(document).encode(), f"rank{rank}")
        for rank, document in enumerate(documents(factors))
    ]


def written(folder: Path, factors: Sequence[Sequence[float]] = ((1.0, 1.0),) * 3) -> Path:
    """The files in a folder."""
    folder.mkdir(exist_ok=True)
    for rank, document in enumerate(documents(factors)):
        (folder / f"run_rank{rank}.json").write_text(json.dumps(document))
    return folder


def _step(recordings: Sequence[RankRecording], number: int, factors: Sequence[float], at: float) -> float:
    """One step of all ranks, from one moment on; returns when it is over."""
    clocks = [at] * len(recordings)
    for rank, run in enumerate(recordings):
        for place, (layer, _, forward_us, _) in reversed(list(enumerate(LAYERS))):
            lasts = factors[rank] * forward_us
            run.annotation(f"daceml.layer: module.{layer}", clocks[rank], lasts)
            run.operator("aten::linear", clocks[rank], lasts, sequence=10 * number + place)
            clocks[rank] += lasts
    free_us, sent = at, list[float]()
    for place, (_, size, _, backward_us) in enumerate(LAYERS):
        for rank, run in enumerate(recordings):
            lasts = factors[rank] * backward_us
            frame = "autograd::engine::evaluate_function: AddmmBackward0"
            run.operator(frame, clocks[rank], lasts, sequence=10 * number + place)
            run.operator("aten::mm", clocks[rank], lasts, sequence=10 * number + place)
            clocks[rank] += lasts
        begins = max(*clocks, free_us)
        free_us = begins + sum_us(size)
        for rank, run in enumerate(recordings):
            start_us = max(clocks[rank], sent[-1] if sent else at)
            run.gloo("all_reduce", clocks[rank], start_us, free_us - start_us, elements=size // 4)
            clocks[rank] += ASKING_US
        sent.append(free_us)
    over_us = max(*clocks, free_us)
    for run in recordings:
        run.annotation("Optimizer.step#SGD.step", over_us, UPDATE_US)
        run.operator("aten::add_", over_us, UPDATE_US)
        run.annotation(f"ProfilerStep#{number}", at, over_us + UPDATE_US - at)
    return over_us + UPDATE_US

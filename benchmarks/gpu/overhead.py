"""What a call with CUDA graphs takes on the host besides the copies of its inputs."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.case import Case
from benchmarks.gpu.target import Target, target_of
from benchmarks.gpu.timing import Step, measure, rounds_of, row_of
from daceml.interval import as_json

BATCH, WIDTH = 16, 64
# Calls of a batch: fewer launches than a stream takes before it makes the host wait.
BATCH_US = 2000.0


class HostClock:
    """The host's time for calls that nobody waits for; the device is idle before and after."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def __call__(self, step: Step, calls: int) -> float:
        """Microseconds per call."""
        self.target.wait()
        begun = time.perf_counter()
        for _ in range(calls):
            step()
        taken_us = (time.perf_counter() - begun) * 1e6 / calls
        self.target.wait()
        return taken_us


def overhead(case: Case) -> dict[str, Any]:
    """Two layers of a perceptron, whose kernels take less than a launch, beside what a call cannot avoid.

    `copies` writes the input into a tensor of the same size, as a graph with fixed addresses needs it;
    `by_hand` also replays a graph of eager's, which is what anybody has to do.
    """
    target = target_of(emulated=case.emulated)
    torch.manual_seed(0)
    module = target.place(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).eval())
    x = torch.randn(BATCH, WIDTH, device=target.device)
    held = torch.empty_like(x)

    def by_hand() -> Step:
        replay = target.replay(partial(module, held))

        def step() -> None:
            held.copy_(x)
            replay()

        return step

    def ours() -> Step:
        compiled = target.compile(module, training=False, cuda_graphs=not case.emulated)
        return partial(compiled, x)

    # around everything: to enter such a region takes time, too
    with torch.no_grad():
        seen = measure(
            {"daceml": ours, "copies": lambda: partial(held.copy_, x), "by_hand": by_hand},
            HostClock(target),
            rounds=rounds_of(case),
            needed=("daceml", "copies"),
            batch_us=BATCH_US,
        )
    return {"host": row_of(seen), "overhead_us": as_json(seen.difference_us("daceml", "copies"))}

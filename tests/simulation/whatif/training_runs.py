"""Small runs that the tests of communication share."""

from __future__ import annotations

import math

from daceml.simulation.graph import TaskGraph
from daceml.simulation.network.links import Link
from daceml.simulation.network.topology import Topology
from daceml.simulation.whatif.gradients import Gradients
from tests.support.task_stories import graph_of


def pair(bytes_per_us: float = 1.0, *, latency_us: float = 0.0) -> Topology:
    """Two devices that sum as many bytes a microsecond as told: a ring of two sends the array once."""
    link = Link(bytes_per_s=bytes_per_us * 1e6, latency_us=latency_us)
    return Topology(devices_per_node=2, inside=link, overhead_us=0.0)


def infinite() -> Topology:
    return pair(math.inf)


def two_layers(steps: int = 2) -> TaskGraph:
    """On a GPU, 40 us of forward, 60 us of backward and 10 us of optimizer a step, launched well ahead."""
    sentences: list[str] = []
    for step in range(steps):
        for name, duration, rest in (
            ("a.fw", 20, "phase forward layer a"),
            ("b.fw", 20, "phase forward layer b"),
            ("b.bw", 30, "phase backward layer b"),
            ("a.bw", 30, "phase backward layer a"),
            ("sgd", 10, "phase optimizer"),
        ):
            sentences.append(f"launch.{name}.{step} cpu 1 step {step} {rest}")
            sentences.append(f"{name}.{step} gpu0 {duration} after launch.{name}.{step} step {step} {rest}")
    return graph_of(*sentences)


def two_layers_on_cpu() -> TaskGraph:
    """The same on a CPU, once."""
    return graph_of(
        "a.fw cpu 20 kind operator phase forward layer a step 0",
        "b.fw cpu 20 kind operator phase forward layer b step 0",
        "b.bw cpu 30 kind operator phase backward layer b step 0",
        "a.bw cpu 30 kind operator phase backward layer a step 0",
        "sgd cpu 10 kind operator phase optimizer step 0",
    )


def gradients() -> Gradients:
    """25 bytes in each layer."""
    return Gradients.of({"a.weight": 25, "b.weight": 25})

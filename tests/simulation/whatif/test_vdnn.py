"""Inputs of convolutions wait in the host's memory."""

from __future__ import annotations

import dataclasses

import pytest

from daceml.simulation.engine import simulate
from daceml.simulation.whatif.optimization import Estimate, applied
from daceml.simulation.whatif.vdnn import VirtualizedDnn
from tests.support.golden import golden
from tests.support.task_stories import graph_of

LAYERS = ("norm", "conv1", "conv2", "conv2", "conv1")
GRAPH = graph_of(
    *(
        sentence
        for k, layer in enumerate(LAYERS)
        for phase in ("backward" if k > 2 else "forward",)
        for sentence in (
            f"l{k} cpu 2 phase {phase} step 0",
            f"{layer}_{phase} gpu0 100 with l{k} + 4 phase {phase} layer {layer} step 0"
            f" operator aten::{layer}d",
        )
    )
)
CERTAIN = VirtualizedDnn(activation_bytes={"conv1": 52e3, "conv2": 142e3}, bytes_per_s=Estimate.known(1e9))


def test_copies_away_hold_back_the_next_layer_and_copies_back_the_backward_phase():
    before = simulate(GRAPH)
    assert before["conv1_forward"] == (104, 204) and before["conv1_backward"] == (404, 504)
    schedule = simulate(applied(CERTAIN, GRAPH))
    assert schedule["offload conv1"] == (104, 164) and schedule["conv2_forward"] == (204, 304)
    assert schedule["offload conv2"] == (204, 354)  # 8 us, and 142 us for the bytes
    assert schedule["prefetch conv2"] == (354, 504) and schedule["conv2_backward"] == (504, 604)
    assert schedule["prefetch conv1"] == (504, 564) and schedule["conv1_backward"] == (604, 704)


def test_layers_need_not_wait_for_copies_away():
    free = dataclasses.replace(CERTAIN, release=False, usual_bytes=0.0, activation_bytes={})
    assert simulate(applied(free, GRAPH))["conv1_backward"] == (412, 512)  # 8 us for an empty copy back


@pytest.mark.parametrize(
    ("graph", "option", "facts"),
    [
        (GRAPH, VirtualizedDnn(), ("'conv1'", "activation_bytes", "usual_bytes")),
        (graph_of("conv gpu0 1 phase forward"), CERTAIN, ("1", "0")),
        (graph_of("op cpu 1 kind operator"), CERTAIN, ()),
        (
            graph_of("conv gpu0 1 phase forward layer a", "conv gpu0 1 phase backward layer a"),
            VirtualizedDnn(usual_bytes=1.0),
            (),
        ),
    ],
    ids=["no size", "no backward phase", "no kernels", "no launches"],
)
def test_what_it_must_know_it_asks_for(graph, option: VirtualizedDnn, facts: tuple[str, ...]):
    reason = option.check(graph)
    assert reason == golden() and all(fact in reason for fact in facts)

"""Activations in fewer bits."""

from __future__ import annotations

import dataclasses

from daceml.simulation.engine import simulate
from daceml.simulation.whatif.gist import Gist
from daceml.simulation.whatif.optimization import Estimate, applied
from tests.support.golden import golden
from tests.support.task_stories import graph_of


def graph(*kernels: tuple[str, str]):
    return graph_of(
        *(
            sentence
            for k, (operator, phase) in enumerate(kernels)
            for sentence in (
                f"l{k} cpu 1 phase {phase} step 0",
                f"{operator}_{phase} gpu0 20 with l{k} + 1 phase {phase} layer {operator} step 0"
                f" operator aten::{operator}",
            )
        )
    )


CERTAIN = Gist(
    sparse_share=Estimate.known(0.5), binarize_share=Estimate.known(0.25), reduce_share=Estimate.known(0.1)
)


def test_before_a_convolution_activations_are_made_sparse_and_restored_for_its_backward_phase():
    schedule = simulate(
        applied(CERTAIN, graph(("relu", "forward"), ("conv2d", "forward"), ("conv2d", "backward")))
    )
    assert schedule["sparse encode"] == (21, 31) and schedule["conv2d_forward"] == (31, 51)
    assert schedule["sparse decode"] == (51, 61) and schedule["conv2d_backward"] == (61, 81)


def test_before_pooling_one_bit_is_kept():
    schedule = simulate(applied(CERTAIN, graph(("relu", "forward"), ("max_pool2d", "forward"))))
    assert schedule["binary encode"] == (21, 26) and schedule["max_pool2d_forward"] == (26, 46)


def test_with_loss_outputs_of_convolutions_are_reduced_too():
    lossy = dataclasses.replace(CERTAIN, lossy=True)
    schedule = simulate(
        applied(lossy, graph(("relu", "forward"), ("conv2d", "forward"), ("conv2d", "backward")))
    )
    assert schedule["reduced encode"] == (51, 53) and schedule["conv2d_backward"] == (65, 85)


def test_a_run_without_such_activations_is_refused():
    assert CERTAIN.check(graph(("conv2d", "forward"), ("relu", "forward"))) == golden()
    assert CERTAIN.check(graph_of("op cpu 1 kind operator")) == golden()

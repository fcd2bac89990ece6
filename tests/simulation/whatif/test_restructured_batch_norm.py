"""Normalisation between two convolutions."""

from __future__ import annotations

from daceml.simulation.engine import simulate
from daceml.simulation.whatif.optimization import Estimate, applied
from daceml.simulation.whatif.restructured_batch_norm import RestructuredBatchNorm
from tests.support.golden import golden
from tests.support.task_stories import graph_of

CERTAIN = RestructuredBatchNorm(speedup=Estimate(2.0, fast=2.0, slow=1.0))


def test_normalisation_is_faster_and_the_activation_next_to_it_is_gone():
    graph = graph_of(
        "conv gpu0 9 phase forward operator aten::conv2d",
        "bn gpu0 8 phase forward operator aten::batch_norm",
        "act gpu0 4 phase forward operator aten::relu_",
        "add gpu0 2 phase forward operator aten::add",
        "act2 gpu0 4 phase forward operator aten::relu_",
        "dact gpu0 4 phase backward operator aten::relu_",
        "dbn gpu0 6 phase backward operator aten::batch_norm",
    )
    schedule = simulate(applied(CERTAIN, graph))
    assert schedule["bn"] == (9, 13) and schedule["add"] == (13, 15) and schedule["act2"] == (15, 19)
    assert schedule["dbn"] == (19, 22) and len(schedule) == 5


def test_without_operators_names_of_kernels_tell():
    graph = graph_of(
        "bn_fw_tr gpu0 8 phase forward", "clamp gpu0 4 phase forward", "gemm gpu0 1 phase forward"
    )
    assert simulate(applied(CERTAIN, graph))["gemm"] == (4, 5)


def test_a_run_without_normalisation_is_refused():
    assert CERTAIN.check(graph_of("gemm gpu0 1")) == golden()

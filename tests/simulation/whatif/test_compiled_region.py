"""Kernels that only move data, fused."""

from __future__ import annotations

import dataclasses

import pytest

from daceml.errors import WhatIfError
from daceml.simulation.engine import simulate
from daceml.simulation.whatif.compiled_region import CompiledRegion
from daceml.simulation.whatif.optimization import Estimate, applied
from daceml.simulation.whatif.whatif_result import predict
from tests.support.golden import golden, raises
from tests.support.operator_steps import every_phase, steps_of
from tests.support.task_stories import graph_of

KERNELS = (("gemm", "fc"), ("bias", "fc"), ("gelu", "act"), ("mask", "act"), ("gemm2", "fc2"))
GRAPH = graph_of(
    *(
        sentence
        for name, layer in KERNELS
        for sentence in (
            f"l_{name} cpu 2 gap 10 phase forward step 0",
            f"{name} gpu0 11 with l_{name} + 4 phase forward layer {layer} step 0",
        )
    )
)
CERTAIN = CompiledRegion(
    kept_share=Estimate.known(0.5), floor_us=Estimate.known(1), launch_gap_us=Estimate.known(3)
)


def test_runs_between_products_become_one_kernel_each():
    assert simulate(GRAPH)["gemm2"] == (62, 73)
    schedule = simulate(applied(CERTAIN, GRAPH))
    # 11, and half of 2 x 10; launches are 3 us apart
    assert (
        schedule["gemm"] == (14, 25)
        and schedule["fused 3: mask"] == (25, 46)
        and schedule["gemm2"] == (46, 57)
    )
    assert schedule["l_gemm2"] == (20, 22)


def test_only_the_chosen_layers_are_compiled():
    schedule = simulate(applied(dataclasses.replace(CERTAIN, layers="act"), GRAPH))
    assert schedule["fused 2: mask"][1] - schedule["fused 2: mask"][0] == 16 and schedule["l_bias"] == (
        22,
        24,
    )


def test_a_fused_kernel_begins_as_early_as_the_first_that_it_replaces():
    """Its launch is the first one: the last launch, which comes late, delays nothing."""
    graph = graph_of(
        "l_bias cpu 2 gap 1 phase forward step 0",
        "bias gpu0 40 with l_bias + 4 phase forward step 0",
        "l_gelu cpu 2 gap 3 phase forward step 0",
        "gelu gpu0 4 with l_gelu + 30 phase forward step 0",
    )
    assert simulate(graph)["gelu"] == (41 + 4, 45 + 4)
    assert simulate(applied(CERTAIN, graph))["fused 2: gelu"] == (5, 5 + 40 + 1.5)


def test_host_work_that_is_no_dispatch_stays():
    """Before its second launch something else takes 20 ms, of which dispatch is 200 us at most."""
    graph = graph_of(
        *(
            sentence
            for name, gap_us in (("bias", 10), ("gelu", 20_000), ("gemm", 10))
            for sentence in (
                f"l_{name} cpu 2 gap {gap_us} phase forward step 0",
                f"{name} gpu0 10 with l_{name} + 4 phase forward layer fc step 0",
            )
        )
    )
    seen = predict(graph, [CompiledRegion()])
    assert seen.step_us > 20_000 - 200
    assert 1 <= seen.speedup < 1.1


def test_work_that_waits_for_another_stream_is_not_fused_with_what_ran_before_it():
    graph = graph_of(
        "l_side cpu 2 phase forward step 0",
        "side gpu1 100 with l_side + 4 step 0",
        "l_bias cpu 2 gap 1 phase forward step 0",
        "bias gpu0 40 with l_bias + 4 phase forward step 0",
        "l_gelu cpu 2 gap 3 phase forward step 0",
        "gelu gpu0 30 with l_gelu + 4 after side phase forward step 0",
        "l_mask cpu 2 gap 3 phase forward step 0",
        "mask gpu0 3 with l_mask + 4 phase forward step 0",
    )
    schedule = simulate(applied(dataclasses.replace(CERTAIN, layers=None), graph))
    assert schedule["bias"][0] < 10 and schedule["fused 2: mask"][0] == schedule["side"][1]


def test_costs_that_the_compiler_knows_are_taken():
    schedule = simulate(applied(dataclasses.replace(CERTAIN, layers="^fc$", costs_us={"fc": 7.0}), GRAPH))
    start, end = schedule["fused 2: bias"]
    assert end - start == 7


def test_kernels_between_products_take_their_cost_and_products_what_they_took():
    graph = steps_of(("aten::layer_norm", 40), ("aten::linear", 100), ("aten::gelu", 50), ("aten::mul", 30))
    region = CompiledRegion(between_products_us=(20.0, 35.0), phases=every_phase(graph))
    assert predict(graph, [region]).step_us == pytest.approx(20 + 100 + 35)


def test_a_bias_behind_the_last_product_counts_to_the_work_before_it():
    graph = steps_of(("aten::layer_norm", 40), ("aten::mul", 10), ("aten::linear", 100))
    region = CompiledRegion(between_products_us=(20.0, 7.0), phases=every_phase(graph))
    assert predict(graph, [region]).step_us == pytest.approx(20 + 7 + 100)


def test_a_program_with_other_products_is_refused():
    graph = steps_of(("aten::linear", 100), ("aten::gelu", 50), ("aten::mul", 30))
    region = CompiledRegion(between_products_us=(1.0, 1.0, 1.0), phases=every_phase(graph))
    with raises(WhatIfError, "1 products", "program 2"):
        predict(graph, [region])


def test_operators_of_a_run_without_a_device_are_fused():
    graph = graph_of(
        *(
            f"{name} cpu 11 gap 2 kind operator phase forward"
            for name in ("aten::mm", "aten::gelu", "aten::mul")
        )
    )
    schedule = simulate(applied(CERTAIN, graph))
    assert schedule["aten::mm"] == (2, 13) and schedule["fused 2: aten::mul"] == (15, 31)


@pytest.mark.parametrize(
    ("option", "fact"),
    [
        (CompiledRegion(layers="lstm"), ""),
        (CompiledRegion(layers="^fc$"), ""),
        (CompiledRegion(costs_us={"rnn": 1.0}), "'rnn'"),
    ],
    ids=["no layer", "nothing to fuse", "no layer with a cost"],
)
def test_a_region_without_anything_to_fuse_is_refused(option: CompiledRegion, fact: str):
    reason = option.check(GRAPH)
    assert reason == golden() and fact in reason

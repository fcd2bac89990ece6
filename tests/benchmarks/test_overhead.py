"""Rows and bars of the overhead benchmark, from figures that are made up, and its steps on eager PyTorch."""

from __future__ import annotations

import pytest
import torch

import daceml
from benchmarks import overhead
from benchmarks.rounds import Measurement, Slice


def measured(torch_us: float, daceml_us: float, rounds: int = 6) -> Measurement:
    entry = {
        "torch": Slice(duration_us=torch_us, foreign=0.0),
        "daceml": Slice(duration_us=daceml_us, foreign=0.0),
    }
    return Measurement(names=("torch", "daceml"), rounds=(entry,) * rounds)


def test_the_bar_is_on_the_difference_to_the_torch_call():
    assert overhead.one_operator_bar("relu", measured(4.0, 18.5)).met
    bar = overhead.one_operator_bar("relu", measured(4.0, 19.5))
    assert "relu" in bar.name and not bar.met
    assert (bar.figure, bar.limit) == (pytest.approx(15.5), 15)


def test_too_few_quiet_rounds_are_no_figure():
    bar = overhead.one_operator_bar("relu", measured(4.0, 5.0, rounds=3))
    assert bar.figure is None
    assert bar.note.endswith("too few quiet rounds")


def test_host_time_is_what_is_left_of_each_call_without_its_kernels():
    row = overhead.host_time_row([1000.0, 1100.0, 5000.0], [950.0, 1040.0, 4930.0])
    assert row["host_us"]["median"] == 60.0
    assert overhead.host_time_bar(row).met
    assert not overhead.host_time_bar(overhead.host_time_row([1000.0], [800.0])).met


@pytest.mark.parametrize("operator", overhead.OPERATORS)
def test_the_torch_call_and_the_module_compute_the_same(operator: str):
    enabled = torch.is_grad_enabled()
    try:
        results = [overhead.build_step(operator, how)() for how in ("torch", "eager")]
    finally:
        torch.set_grad_enabled(enabled)
    assert torch.equal(*results)
    assert not results[0].requires_grad


def test_one_more_link_of_a_chain_is_what_nine_take_longer_than_one():
    us = {"eager 1": 10.0, "daceml 1": 60.0, "eager 9": 50.0, "daceml 9": 180.0}
    entry = {name: Slice(duration_us=duration, foreign=0.0) for name, duration in us.items()}
    bar = overhead.chain_bar("cut", 30.0, Measurement(names=tuple(us), rounds=(entry,) * 6))
    assert (bar.figure, bar.limit, bar.met) == (pytest.approx(10.0), 30.0, True)


def test_chains_are_nodes_of_torchs_kernels_and_cuts():
    fallbacks = daceml.compile(overhead.chain("fallback", 2), backward=False)
    cuts = daceml.compile(overhead.chain("cut", 2), backward=False, fullgraph=False)
    for kind, compiled in (("fallback", fallbacks), ("cut", cuts)):
        for _ in range(3):  # the ways of cutting are tried one a call
            x = torch.rand(1, 16)
            torch.testing.assert_close(compiled(x), overhead.chain(kind, 2)(x))
    steps = daceml.explain(fallbacks, torch.rand(1, 16)).steps
    assert [step.kind for step in steps] == ["torch"] * 2
    assert len(cuts._session.partial.cuts) == 1

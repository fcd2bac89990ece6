"""Comparisons with peers from figures that are made up: which peer counts, and when a bar is met."""

from __future__ import annotations

from benchmarks import ceilings
from benchmarks.ceilings import Ceilings
from benchmarks.speed import default_bar, mean_bar, slower_bar
from tests.benchmarks.comparisons import comparison


def test_the_fastest_of_the_others_is_the_peer():
    seen = comparison("mish", eager=40.0, inductor=20.0, daceml=10.0)
    assert seen.best_peer == "inductor"
    assert seen.speedup.value == 2.0
    assert "inductor" in seen.line()


def test_frozen_stands_beside_and_is_no_peer():
    seen = comparison("resnet50", onnxruntime=9.0, daceml=10.0, daceml_frozen=8.0)
    assert seen.best_peer == "onnxruntime"
    assert seen.speedup.value == 0.9
    assert "daceml_frozen" in seen.line()
    assert seen.frozen is not None
    assert seen.frozen.speedup.value == 9 / 8
    assert comparison("resnet50", onnxruntime=9.0, daceml=10.0).frozen is None


def test_the_mean_is_geometric():
    seen = [comparison("a", eager=40.0, daceml=10.0), comparison("b", eager=10.0, daceml=10.0)]
    bar = mean_bar("blocks", seen, at_least=1.8)
    assert bar.met
    assert bar.figure is not None
    assert abs(bar.figure - 0.5) < 1e-12
    assert not mean_bar("blocks", seen, at_least=2.1).met


def test_rows_that_are_slower_for_certain_are_counted_and_named():
    seen = [comparison("a", eager=9.0, daceml=10.0), comparison("b", eager=11.0, daceml=10.0)]
    bar = slower_bar("blocks", seen, below=1.0)
    assert (bar.figure, bar.note) == (1, "a")
    assert not bar.met
    assert slower_bar("blocks", seen, below=0.8).met


def test_what_was_not_measured_meets_nothing():
    seen = [comparison("a", rounds=3, eager=40.0, daceml=10.0)]
    assert not mean_bar("blocks", seen, at_least=1.0).met
    assert not slower_bar("blocks", seen, below=0.5).met


def test_what_runs_under_another_allocator_is_no_peer():
    seen = comparison("a", **{"eager": 40.0, "daceml": 10.0, "eager@default": 5.0, "daceml@default": 4.0})
    assert seen.best_peer == "eager"
    bar = default_bar("networks", [seen], at_least=1.4)
    assert not bar.met
    assert bar.note == "1.25 times as fast, n=1"
    assert default_bar("networks", [seen], at_least=1.25).met
    assert not default_bar("networks", [comparison("b", eager=40.0, daceml=10.0)], at_least=1.0).met


def test_a_floor_is_the_slower_of_memory_and_exponentials():
    machine = Ceilings(bytes_per_s=1e9, exponentials_per_s=1e6)
    assert machine.floor_us(2000, 1) == 2.0
    assert machine.floor_us(1000, 7) == 7.0


def test_the_machine_is_measured_in_plausible_units():
    machine = ceilings.measure(runs=1)
    assert 1e8 < machine.bytes_per_s < 1e13
    assert 1e6 < machine.exponentials_per_s < 1e13
    assert 1e8 < machine.flops_per_s < 1e16

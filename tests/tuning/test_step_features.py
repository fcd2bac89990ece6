"""Predictions: what is known of steps is used, identical programs are found, more work takes longer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from daceml.codegen.planning.plan import Plan, make_plan
from daceml.compiler.pipeline import optimised_network
from daceml.config import config
from daceml.frontend.capture.capture import export_program
from daceml.onnx_ops.external import external_call
from daceml.runtime.timing.machine_fingerprint import fingerprint
from daceml.toolchain.cache import Cache
from daceml.tuning.machine_speeds import measure
from daceml.tuning.step_features import (
    Predictor,
    StepFacts,
    identity,
    modelled_us,
    program_facts,
    symbol_values,
)
from daceml.tuning.variant_recipes import varied_recipe
from tests.tuning import speeds

MACHINE = replace(speeds.MACHINE, threads=4, region_us=5.0)
STEP = StepFacts(
    key="a",
    kind="kernel",
    pieces=1,
    unique_bytes=10**5,
    total_bytes=10**5,
    flops=0,
    special_functions=0,
    exponential_tenths=0,
)


def planned(module: nn.Module, x: torch.Tensor, *choices: str) -> Plan:
    with torch.no_grad():
        exported = export_program(module.eval(), (x,))
        return make_plan(optimised_network(exported, recipe=varied_recipe(choices)).network, external_call)


@pytest.fixture
def module() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Softmax(-1), nn.Linear(5, 3))


def test_programs_are_identical_whatever_their_arrays_are_called(module: nn.Module):
    x = torch.randn(4, 6)
    plain = identity([planned(module, x)])
    assert identity([planned(module, x, "columns everywhere")]) == plain
    assert identity([planned(module, x, "products in loops")]) != plain
    assert identity([planned(module, torch.randn(5, 6))]) != plain


def test_programs_that_write_other_arrays_are_not_identical():
    class Cross(nn.Module):
        def __init__(self, swap: bool) -> None:
            super().__init__()
            self.swap = swap

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            a, b = x.exp(), x.sin()
            return (b, a) if self.swap else (a, b)

    x = torch.randn(4)
    assert identity([planned(Cross(True), x)]) != identity([planned(Cross(False), x)])


def test_known_steps_take_what_they_took(module: nn.Module):
    facts = program_facts([planned(module, torch.randn(4, 6))], {})
    predictor = Predictor(MACHINE)
    took = [10.0 + i for i in range(len(facts))]
    predictor.learn(facts, took, call_us=sum(took) + 7.0)
    assert predictor.us(facts) == pytest.approx(sum(took) + 7.0)
    changed = program_facts([planned(module, torch.randn(4, 6), "products in loops")], {})
    assert predictor.us(changed) != predictor.us(facts)


def test_unknown_steps_are_scaled_by_what_is_known_of_their_kind():
    predictor = Predictor(MACHINE)
    before = predictor.us([replace(STEP, key="b")])
    predictor.learn([STEP], [2 * modelled_us(MACHINE, STEP)], call_us=0.0)
    assert predictor.us([replace(STEP, key="b")]) == pytest.approx(2 * before)
    assert predictor.us([replace(STEP, key="b", kind="aten")]) == pytest.approx(
        Predictor(MACHINE).us([replace(STEP, kind="aten")])
    )


def test_each_kind_of_work_takes_its_time():
    us = partial(modelled_us, MACHINE)
    assert us(STEP) == pytest.approx(0.2)  # its arrays lie in the caches, and its loops are counted apart
    assert us(replace(STEP, vector_operations=10**5)) == pytest.approx(2.5 + 0.2)
    assert us(replace(STEP, exponential_tenths=10**6)) == pytest.approx(100.0 + 0.2)
    assert us(replace(STEP, exponential_tenths=10**6, pieces=1024)) == pytest.approx(25.0 + 5.0)
    # one thread has two of five pieces
    assert us(replace(STEP, exponential_tenths=10**6, pieces=5)) == pytest.approx(40.0 + 5.0)
    assert us(replace(STEP, logarithm_tenths=10**6)) == pytest.approx(200.0 + 0.2)
    assert us(replace(STEP, exponential_tenths=10**6, division_tenths=10**6)) == pytest.approx(110.0 + 0.2)
    assert us(replace(STEP, error_function_tenths=10**6, power_tenths=10**6)) == pytest.approx(750.2)
    assert us(replace(STEP, dependent_operations=10**6)) == pytest.approx(500.0 + 0.2)
    assert us(replace(STEP, unique_bytes=10**8)) == pytest.approx(1e4 + 0.2)  # out of the caches
    assert us(replace(STEP, unique_bytes=10**8, streamed_bytes=10**8)) == pytest.approx(5e3 + 0.2)
    assert us(replace(STEP, kind="aten", flops=10**9)) == pytest.approx(1e4 + 1.0)
    machine = replace(MACHINE, levels=((10**6, 1e11), (10**8, 1e10)))
    shared = partial(modelled_us, machine)
    assert shared(replace(STEP, unique_bytes=10**9)) == pytest.approx(1e5 + 0.2)
    between = machine.bytes_per_s(round(2**23 * 2**0.5))
    assert shared(replace(STEP, unique_bytes=10**7)) == pytest.approx(1e7 / between * 1e6 + 0.2)
    # what was touched a short while ago is in a cache, however much a step moves
    near, far = (0, 10**9, *[0] * 7), (*[0] * 8, 10**9)
    near_us, far_us = (shared(replace(STEP, unique_bytes=10**9, reach=r)) for r in (near, far))
    assert near_us < far_us / 5 and far_us == pytest.approx(1e5 + 0.2)
    slow = replace(STEP, scalar_operations=10**5, strided_accesses=10**4, loop_starts=10**3)
    for name in ("scalar_operations", "strided_accesses", "loop_starts"):
        assert us(replace(slow, **{name: 0})) < us(slow)


def test_symbolic_sizes_are_those_of_the_call():
    class Scaled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(x)

    exported = export_program(
        Scaled(), (torch.randn(4, 6),), dynamic_shapes={"x": {0: torch.export.Dim("n")}}
    )
    with torch.no_grad():
        plan = make_plan(optimised_network(exported).network, external_call)
    values = symbol_values(plan.network, [(50, 6)])
    assert list(values.values()) == [50]
    (few,), (many,) = program_facts([plan], values), program_facts([plan], dict.fromkeys(values, 500))
    assert few.special_functions == 300 and many.special_functions == 3000


def test_this_machine_can_be_measured():
    threads = torch.get_num_threads()
    seen = measure(Cache(Path(config().cache_folder)))
    assert torch.get_num_threads() == threads == seen.threads
    assert seen.memory_bytes_per_s > 1e8 and seen.cached_bytes_per_s > 1e8
    assert seen.product_flops_per_s > 1e8 and seen.exponentials_per_s > 1e6
    assert seen.additions_per_s < seen.divisions_per_s and seen.streamed_bytes_per_s > 1e8
    assert seen.region_us >= 0.5 and seen.call_us > 0.0
    sizes, speeds = zip(*seen.levels, strict=True)
    assert list(sizes) == sorted(sizes) and list(speeds) == sorted(speeds, reverse=True)
    assert str(threads) in fingerprint()

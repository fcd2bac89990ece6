"""What is measured in a slow hour is learned on the scale of a quick one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from daceml.compiler.verification.value_difference import largest_difference
from daceml.config import config
from daceml.exploration import variant_timings
from daceml.exploration.effects import Ratio, effects
from daceml.exploration.step_database import Library
from daceml.exploration.variant_timings import Programs
from daceml.operations.database.store import OpDatabase
from daceml.runtime.timing.comparison import Comparison
from daceml.toolchain.cache import Cache
from daceml.tuning.model_call import Subject
from daceml.tuning.variant import Variant
from tests.support.golden import golden


@pytest.fixture(autouse=True)
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step was measured on this machine before, in earlier runs of these tests either."""
    speeds = Cache(Path(config().cache_folder))  # of the machine itself
    path = tmp_path / "steps.db"
    monkeypatch.setattr(Library, "of_this_machine", lambda: Library(OpDatabase(path), speeds))


@pytest.fixture
def subject() -> Subject:
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.LayerNorm(16)).eval()
    return Subject(model, (torch.randn(64, 16),), {}, training=False)


def test_a_slow_hour_is_told_on_the_scale_of_a_quick_one(subject: Subject):
    with Programs.measured(subject, limit_s=0.3) as first:
        steps = first.lowered(Variant()).facts
        assert first.slowness == 1.0  # nothing was known
        quick = [0.01] * len(steps)
        first.library.add(steps, quick)
    with Programs.measured(subject, limit_s=0.3) as second:
        assert second.first.measured_share > 0.8
        assert second.slowness > 2
        learned = [second.times.step(step).us for step in steps]
        kept = [second.library.times().step(step).us for step in steps]
    # nothing is learned that is faster than what a quick hour has seen by more than hours differ
    assert sum(learned) <= sum(quick) * 1.01
    assert kept == pytest.approx(quick)  # and nothing is kept of so slow an hour


def test_a_machine_that_is_busy_the_first_time_is_told_by_what_others_use(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("daceml.runtime.timing.comparison.FOREIGN_LIMIT", 0.1)
    monkeypatch.setattr("daceml.runtime.timing.machine_load.foreign_share", lambda *_: 0.48)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(torch.get_num_threads())))
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    with Programs.measured(subject, limit_s=0.3) as programs:
        assert programs.slowness == 1.0 and programs.foreign_share == 0.48
        known = programs.predicted(Variant())
        assert known.high_us > 1.4 * known.us, "threads that wait for each other make ratios uncertain"
        disturbance = programs.disturbance
        assert len(programs.library.times()) == 0  # nothing is kept
        assert len(programs.profiles[Variant()]) > 0
    (told,) = [record.message for record in caplog.records if disturbance in record.message]
    assert [disturbance, told] == [golden(), golden()]
    assert "48%" in disturbance


def test_what_is_kept_was_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("daceml.exploration.results._BUSY", float("inf"))
    model = nn.Sequential(nn.Linear(20, 20), nn.Tanh(), nn.LayerNorm(20)).eval()
    subject = Subject(model, (torch.randn(50, 20),), {}, training=False)
    plain = Variant(unoptimised=True)
    least = dict[str, float]()
    with Programs.measured(subject, limit_s=0.3) as first:
        quick = [us / 1.3 for us in first.profiles[Variant()]]
        first.library.add(first.lowered(Variant()).facts, quick)
        for step, us in zip(first.lowered(Variant()).facts, quick, strict=True):
            least[step.key] = min(us, least.get(step.key, us))
    for _ in range(2):  # hour after hour, slower than that one
        with Programs.measured(subject, limit_s=0.3) as later:
            later.measure(plain)
            known = later.library.times()
            for variant in (Variant(), plain):
                steps, took_us = later.lowered(variant).facts, later.profiles[variant]
                for step, us in zip(steps, took_us, strict=True):
                    if us > 0:
                        least[step.key] = min(us, least.get(step.key, us))
            for step in (*later.lowered(Variant()).facts, *later.lowered(plain).facts):
                assert known.step(step).us == pytest.approx(least[step.key])


def test_a_training_step_is_lowered_without_a_compiler(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise AssertionError("a kernel is compiled")

    monkeypatch.setattr("daceml.codegen.kernel_objects.KernelObjects.begin", refuse)
    model, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh()), torch.randn(4, 6)
    lowered = Subject(model, (x,), {}, training=True).lower(Variant())
    assert len(lowered.plans) == 2 and lowered.kernels > 0


class Cancelling(nn.Module):
    """What is left of two products that are nearly the same: rounding is seen in its third digit."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.register_buffer("weight", torch.randn(256, 32))
        self.register_buffer("small", 1e-5 * torch.randn(256, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.weight + self.small) - x.flip(1) @ self.weight.flip(0)


def test_who_rounds_elsewhere_computes_the_same():
    x = torch.randn(64, 256)
    subject = Subject(Cancelling().eval(), (x.clone(),), {}, training=False)
    in_loops = Variant(choices=("products in loops",))
    with Programs.measured(subject, limit_s=0.3) as programs:
        run = subject.compile(subject.lower(in_loops))
        standard = programs._standard
        assert largest_difference(run.values, standard.values, run.limit) is not None
        assert run.difference(standard) == "" and programs.measure(in_loops).ms > 0
        assert torch.equal(standard.inputs[0], x), "inputs are read and not changed"
        wrong = {name: 1.2 * value for name, value in run.values.items()}
        assert largest_difference(wrong, standard.values, run.limit, moved=lambda: standard.moved) is not None


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """Let each measurement see other programs use such shares of the machine, the last one from then on."""

    def given(*seen: float) -> list[float]:
        left, asked = list(seen), list[float]()
        measured = variant_timings.compare

        def busy(*args: Any, **named: Any) -> Comparison:
            asked.append(left.pop(0) if len(left) > 1 else left[0])
            return replace(measured(*args, **named), foreign_share=asked[-1])

        monkeypatch.setattr("daceml.runtime.timing.comparison.disturbing", lambda share: share > 0.1)
        monkeypatch.setattr(variant_timings, "compare", busy)
        monkeypatch.setattr(variant_timings, "_PAUSE_S", 0.01)
        return asked

    return given


def test_a_disturbed_measurement_is_repeated_until_the_machine_is_idle(
    subject: Subject, shares: Callable[..., list[float]]
):
    asked = shares(0.5, 0.4, 0.0)
    with Programs.measured(subject, limit_s=0.1, patience_s=60.0) as programs:
        assert asked == [0.5, 0.4, 0.0]
        assert not programs.busy(Variant()) and not programs.disturbance
        assert 0 < programs.patience_s < 60


def test_repetitions_end_and_the_least_disturbed_one_counts(
    subject: Subject, shares: Callable[..., list[float]]
):
    asked = shares(0.5, 0.3, 0.6)
    with Programs.measured(subject, limit_s=0.1, patience_s=0.5) as programs:
        assert len(asked) > 1 and programs.patience_s <= 0
        assert "30%" in programs.busy(Variant(), Variant(unoptimised=True))
        begun = len(asked)
        programs.measure(Variant(unoptimised=True))
        assert len(asked) == begun + 1  # all patience is spent
    asked.clear()
    with Programs.measured(subject, limit_s=0.1):
        assert len(asked) == 1  # an exploration has a budget of its own


class Fusible(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.tanh(x) * torch.sigmoid(x), -1).sum(0)


def test_effects_of_a_busy_machine_are_not_given(
    shares: Callable[..., list[float]], monkeypatch: pytest.MonkeyPatch
):
    shares(0.47)
    monkeypatch.setattr("daceml.exploration.effects.PATIENCE_S", 0.05)
    fused, idle = effects(
        Fusible().eval(), torch.randn(8, 16), passes=["fuse_maps", "use_columns"], measure=True, limit_s=0.1
    )
    assert fused.among is None and fused.alone is None and "47%" in fused.busy and not fused.why
    assert fused.unmeasured == ("among", "alone") and fused.changes
    assert idle.among == idle.alone == Ratio.same() and not idle.busy and not idle.unmeasured


def test_a_measured_effect_is_not_given_where_that_measurement_was_disturbed(
    shares: Callable[..., list[float]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("daceml.exploration.effects.PATIENCE_S", 0.0)
    shares(0.0, 0.47)
    (fused,) = effects(
        Fusible().eval(), torch.randn(8, 16), passes=["fuse_maps"], measure=True, alone=False, limit_s=0.1
    )
    assert fused.among is not None and fused.measured_among is None
    assert fused.unmeasured == ("measured_among",) and "47%" in fused.busy

"""The course: usual operators are measured once for a machine, and predictions are better for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from daceml.exploration import microbenchmarks as course
from daceml.exploration import step_database
from daceml.exploration.step_database import Library
from daceml.tuning.model_call import Subject
from daceml.tuning.step_features import StepFacts
from daceml.tuning.variant import Variant
from tests.support.golden import golden


class Few(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * y


class Wrong(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("there is no such operator here")


class Mistaken(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise KeyError("a mistake of ours")


@pytest.mark.slow
def test_a_course_is_measured_once_and_the_rest_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    whole = (Variant(unoptimised=True),)
    parts = [
        course.Part(module=module, training=training, variants=whole)
        for module, training in ((Wrong, False), (Few, False), (Few, True))
    ]
    monkeypatch.setattr(step_database, "COURSE", parts)
    with Library.of_this_machine(tmp_path) as library:
        library.measure_course([])
        times = library.times()
        assert len(times) >= 3  # loops forward and backward
    (told,) = [record.message for record in caplog.records if "Wrong, inference" in record.message]
    assert told == golden()
    assert "there is no such operator here" in told
    asked: list[str] = []
    monkeypatch.setattr(step_database, "measured", lambda part: asked.append(part.title) or [])
    with Library.of_this_machine(tmp_path) as library:
        library.measure_course([])
        assert len(library.times()) == len(times)
    assert asked == ["Wrong, inference"]  # what was measured is not asked for again; what was refused is


def test_what_others_disturbed_is_measured_again_when_they_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    used, asked = [0.0], list[float]()
    monkeypatch.setattr("daceml.runtime.timing.comparison.FOREIGN_LIMIT", 0.1)
    monkeypatch.setattr("daceml.runtime.timing.comparison.crowded", lambda share, threads: True)
    monkeypatch.setattr("daceml.runtime.timing.machine_load.foreign_share", lambda *_: used[-1])
    monkeypatch.setattr("daceml.exploration.step_database._LOOKING_S", 0.0)

    def measured(part: course.Part) -> list[tuple[StepFacts, float]]:
        asked.append(used[-1])
        return [(StepFacts(key=part.title, kind="kernel"), 1.0 + used[-1])]

    monkeypatch.setattr(step_database, "COURSE", [course.Part(module=Few, training=False, variants=())])
    monkeypatch.setattr(step_database, "measured", measured)
    with Library.of_this_machine(tmp_path) as library:
        for share in (0.5, 0.5, 0.0, 0.5, 0.0):
            used.append(share)
            library.measure_course([])
        assert asked == [0.5, 0.0]
        (us,) = (us for _, us in library._known())
        assert us == pytest.approx(1.0)
    asked.clear()
    shares = iter([0.5, 0.0])  # while it is measured, and then gone; the second time nobody looks
    monkeypatch.setattr("daceml.runtime.timing.machine_load.foreign_share", lambda *_: next(shares))
    with Library.of_this_machine(tmp_path / "bursts") as library:
        for _ in range(3):
            library.measure_course([])
    assert len(asked) == 2 and next(shares, None) is None


def test_a_mistake_in_the_course_is_not_hidden():
    with pytest.raises(KeyError, match="a mistake of ours"):
        course.measured(course.Part(module=Mistaken, training=False, variants=(Variant(),)))


def test_a_part_is_for_programs_that_call_its_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plain = course.Part(module=Few, training=False, variants=(Variant(),))
    images = course.Part(
        module=Few, training=True, variants=(Variant(),), functions=frozenset({"convolution"})
    )
    asked: list[str] = []

    def measured(part: course.Part) -> list[tuple[StepFacts, float]]:
        asked.append(part.title)
        return [(StepFacts(key=part.title, kind="kernel"), 1.0)]

    monkeypatch.setattr(step_database, "COURSE", (plain, images))
    monkeypatch.setattr(step_database, "measured", measured)
    with Library.of_this_machine(tmp_path) as library:
        library.measure_course([StepFacts(key="k", kind="kernel")])
        assert asked == ["Few, inference"]
        library.measure_course([StepFacts(key="k", kind="aten", function="convolution")])
        assert asked == ["Few, inference", "Few, training"]


@pytest.mark.slow
def test_every_module_of_the_course_can_be_lowered():
    for part in course.COURSE:
        inputs = tuple(torch.randn(2, 48, 16, 80).requires_grad_(part.training) for _ in range(2))
        subject = Subject(part.module().train(part.training), inputs, {}, training=part.training)
        assert all(subject.lower(variant).facts for variant in part.variants)


@pytest.mark.slow
def test_convolutions_of_every_kind_are_in_the_course():
    (part,) = (one for one in course.COURSE if one.module is course.Images)
    inputs = tuple(torch.randn(4, 48, 64, 80) for _ in range(2))
    subject = Subject(part.module().eval(), inputs, {}, training=False)
    steps = [step for variant in part.variants for step in subject.lower(variant).facts]
    kinds = {(step.function, step.variety) for step in steps if step.variety}
    rows, last = "channels first to first", "channels last to last"
    for order in (rows, last):
        for variety, windows in (
            ("pointwise", "1x1 by 1x1"), ("windows", "3x3 by 1x1"), ("depthwise", "3x3 by 1x1"),
            ("depthwise", "3x3 by 2x2"), ("depthwise", "5x5 by 1x1"), ("depthwise", "5x5 by 2x2"),
        ):  # fmt: skip
            assert ("convolution", (variety, order, windows)) in kinds
    assert ("pointwise", ("pointwise", last, "1x1 by 1x1")) in kinds
    assert ("depthwise", ("depthwise", last, "3x3 by 1x1")) in kinds
    assert part.serves(steps) and not part.serves([StepFacts(key="k", kind="kernel")])
    for step in steps:  # a library copies rows into an order of its own; loops of our own copy nothing
        if step.function in ("pointwise", "depthwise"):
            assert sum(step.reach) == pytest.approx(step.unique_bytes, abs=len(step.reach))
        elif step.variety[:2] == ("windows", rows):
            assert 2.9 * step.unique_bytes < sum(step.reach) < 3.1 * step.unique_bytes
    with_activation = {step.function for step in steps if step.kind == "aten" and step.special_functions}
    assert {"pointwise", "depthwise"} <= with_activation

"""Calls with another number of samples: as inputs, and as variants that are measured."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import ExplorationError, ResultsDifferError
from daceml.exploration.variant_space import Space
from daceml.exploration.variant_timings import Programs
from daceml.module.module import compile_module
from daceml.tuning.call_batch import samples, shared_samples, with_samples
from daceml.tuning.model_call import Subject
from daceml.tuning.variant import Variant
from tests.support.golden import golden, raises


def test_who_leads_with_the_samples_has_them():
    x, mask, table = torch.arange(6.0).reshape(3, 2), torch.ones(3), torch.ones(5, 2)
    (fewer, of_mask, whole), kept = with_samples((x, mask, table), {"scale": 2.0}, 2)
    assert torch.equal(fewer, x[:2]) and of_mask.shape == (2,) and whole is table and kept == {"scale": 2.0}
    (more, *_), _ = with_samples((x, mask, table), {}, 7)
    assert torch.equal(more, torch.cat([x, x, x])[:7])
    assert samples((2.0, torch.tensor(1.0), x), {}) == 3


def test_gradients_of_inputs_are_wanted_as_before():
    x = torch.ones(4, 2, requires_grad=True)
    ((half,), _) = with_samples((x,), {}, 2)
    assert half.requires_grad and half.is_leaf


@pytest.mark.parametrize(
    ("args", "count", "fact"),
    [
        ((torch.ones(3),), 0, "0 samples"),
        ((1.0, torch.tensor(2.0)), 2, "dimension"),
        ((torch.ones(0, 3), torch.ones(4)), 2, "empty"),
    ],
)
def test_what_is_no_batch_is_refused(args: tuple[object, ...], count: int, fact: str):
    with raises(ExplorationError, fact):
        with_samples(args, {}, count)


def test_results_of_the_same_samples_are_compared():
    ours = {"y": torch.ones(2, 3), "loss": torch.tensor(1.0)}
    theirs = {"y": torch.zeros(4, 3), "loss": torch.tensor(2.0)}
    found, expected = shared_samples(ours, theirs, (2, 4))
    assert found.keys() == expected.keys() == {"y"}
    assert found["y"].shape == expected["y"].shape == (2, 3)


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.Linear(32, 8)).eval()


def test_times_are_for_as_many_samples():
    subject = Subject(_model(), (torch.randn(16, 24),), {}, training=False)
    whole, half = subject.lower(Variant()), subject.lower(Variant(samples=8))
    assert (whole.calls, half.calls) == (1, 2)
    assert half.memory_bytes < whole.memory_bytes
    # two calls read the weights twice
    weights = sum(p.numel() * 4 for p in subject.module.parameters())
    assert 0 <= half.moved_bytes - whole.moved_bytes <= 2 * weights


def test_other_batches_are_variants_like_others():
    variants = Space(training=False, freezable=False, batches=(8, 32)).singles()
    assert {one.samples for one in variants} == {None, 8, 32}
    half = Variant(samples=8)
    assert half.promises == (golden(),) and half.title == golden()
    assert "8 samples" in half.promises[0] and "8" in half.title
    model, x = _model(), torch.randn(16, 24)
    subject = Subject(model, (x,), {}, training=False)
    with Programs.measured(subject, limit_s=1) as programs:
        predicted, seen = programs.predicted(half), programs.measure(half)
        assert predicted.us > 0 and seen.ms > 0
    torch.testing.assert_close(
        compile_module(model, **subject.options(half))(x[:8]), model(x[:8]), rtol=1e-5, atol=1e-6
    )


def test_a_batch_goes_with_any_other_change():
    space = Space(training=False, freezable=True, batches=(8,))
    half, loops = Variant(samples=8), Variant(depth="loops")
    assert list(space.combined([half, loops])) == [Variant(samples=8, depth="loops")]
    assert list(space.combined([half, Variant(samples=16)])) == []


def test_results_that_depend_on_all_samples_are_told():
    class Centred(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x - x.mean(dim=0))

    subject = Subject(Centred().eval(), (torch.randn(16, 24),), {}, training=False)
    with Programs.measured(subject, limit_s=1) as programs, pytest.raises(ResultsDifferError):
        programs.measure(Variant(samples=8))


def test_other_devices_are_asked_about_batches_too():
    found = daceml.explore(
        _model(), torch.randn(16, 24), budget=90, measurements=0, most=1, devices=["H100"], batches=[64]
    )
    there = {row.variant.samples: row for row in found.rows if row.variant.device and row.variant.fused}
    assert there.keys() == {None, 64}
    one, many = there[None].predicted_ms, there[64].predicted_ms
    assert one is not None and many is not None and many < one  # launches are shared by four times as many

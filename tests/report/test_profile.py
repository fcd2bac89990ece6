"""Where a call spends its time: the parts add up."""

from __future__ import annotations

import torch
from torch import nn

import daceml
from daceml.errors import ConfigurationError
from daceml.report.profile import CallProfile, profile_call
from tests.support.golden import golden, raises


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh()).eval()


def test_the_parts_add_up():
    seen = profile_call(daceml.compile(small(), backward=False), torch.randn(4, 8), calls=5)
    assert seen.total_us == seen.kernels_us + seen.host_us
    assert min(seen.kernels_us, seen.host_us, seen.uninstrumented_us) > 0
    assert len(seen.steps) >= 1
    assert all(label and duration_us >= 0 for label, duration_us in seen.steps)


def test_the_clocks_are_off_afterwards():
    compiled = daceml.compile(small(), backward=False)
    x = torch.randn(4, 8)
    profile_call(compiled, x, calls=1)
    with torch.no_grad():
        compiled(x)  # writes nowhere: the array of times is gone


def test_it_reads_as_a_table():
    seen = CallProfile(
        total_us=12.0,
        kernels_us=10.0,
        host_us=2.0,
        uninstrumented_us=11.5,
        steps=(("Gemm", 7.5), ("Tanh", 2.5)),
    )
    text = str(seen)
    assert text == golden()
    assert "Gemm  7.5    75%\nTanh  2.5    25%\n" in text
    assert all(figure in text for figure in ("12.0 us", "10.0", "2.0", "11.5"))
    assert seen.to_json()["steps"] == (("Gemm", 7.5), ("Tanh", 2.5))


def test_a_module_that_is_not_compiled_is_refused():
    with raises(ConfigurationError, "profile_call", "Sequential", "daceml.compile(module, backward=False)"):
        profile_call(small(), torch.randn(4, 8))


def test_no_calls_are_refused():
    with raises(ConfigurationError, "profile_call", "0", "calls=1"):
        profile_call(daceml.compile(small()), torch.randn(4, 8), calls=0)

"""ONNX Runtime as the last resort: right values, counted, and refused where it is switched off."""

from __future__ import annotations

import pytest
import torch

from daceml.config import Config
from daceml.errors import NoImplementationError
from tests.support.golden import raises
from tests.support.operator_programs import chosen, program, run

DETERMINANT = "g (float[5, 5] X) => (float Y) { Y = Det (X) }"  # only smaller ones are expanded


def test_an_operator_without_another_implementation_runs():
    assert chosen(DETERMINANT) == "onnxruntime"
    x = torch.randn(5, 5)
    torch.testing.assert_close(run(DETERMINANT, x), x.det(), rtol=1e-4, atol=1e-5)


def test_the_step_is_counted_and_keeps_its_refusals():
    (step,) = [s for s in program(DETERMINANT).manifest.steps if s.kind == "onnxruntime"]
    assert step.label == "Det onnxruntime"


def test_several_results_and_mixed_types_come_back():
    text = (
        "g (float[3, 7] X) => (float[3, 2] V, int64[3, 2] I) "
        "{ k = Constant <value_ints = [2]> () V, I = TopK (X, k) }"
    )
    x = torch.randn(3, 7)
    values, indices = program(text)([x])
    expected = x.topk(2)
    assert torch.equal(values, expected.values)
    assert torch.equal(indices, expected.indices)


def test_what_is_switched_off_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("daceml.onnx_ops.fallback.config", lambda: Config(fallback="none"))
    with raises(NoImplementationError, "Det", "onnxruntime", "DACEML_FALLBACK=none"):
        chosen(DETERMINANT)


def test_attributes_keep_their_kinds():
    """A tensor is no list of numbers, and a float that is whole is no int."""
    filled = "g (int64[2] S) => (float[2, 3] Y) { Y = ConstantOfShape <value: tensor = float[1] {2.5}> (S) }"
    assert run(filled, torch.tensor([2, 3]), allowed=("onnxruntime",)).tolist() == [[2.5] * 3] * 2
    elu = "g (float[3] X) => (float[3] Y) { Y = Elu <alpha = 2.0> (X) }"
    x = torch.tensor([-1.0, 0.0, 3.0])
    torch.testing.assert_close(run(elu, x, allowed=("onnxruntime",)), torch.nn.functional.elu(x, 2.0))

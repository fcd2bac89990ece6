"""ONNX models that no network can hold: ONNX Runtime runs them whole, and that is said."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import daceml
from daceml.config import config
from daceml.errors import (
    CallError,
    ControlFlowError,
    ExecutionError,
    NoImplementationError,
    UnheldValueError,
)
from tests.support.foreign_models import parse
from tests.support.golden import golden, raises

STRINGS = "g (string[N] x) => (string[N] y) { y = StringConcat(x, x) }"
BRANCH = """
    g (bool c, float[3] x) => (float[3] y) <int64[3] i = {0, 1, 2}> {
        y = If (c) <then_branch = a () => (float[3] p) { r = Gather(x, i) p = Neg(r) },
                    else_branch = b () => (float[3] q) { q = Abs(x) }>
    }"""
OPEN = "g (float[N] x) => (int64[1, K] y) { y = NonZero(x) }"
PIECES = "g (float[4] x) => (seq(float[2]) y) <int64 n = {2}> { y = SplitToSequence(x, n) }"


def test_strings(caplog: pytest.LogCaptureFixture):
    model = daceml.ONNXModel(parse(STRINGS))
    with caplog.at_level(logging.WARNING):
        assert model(np.array(["a", "Bc"], dtype=object)).tolist() == ["aa", "BcBc"]
        assert model(["d"]).tolist() == ["dd"]
    (message,) = caplog.messages
    assert "ONNX Runtime" in message and "string" in message and message == golden()


def test_branches_take_and_return_tensors():
    model = daceml.ONNXModel(parse(BRANCH))
    x = torch.tensor([1.0, -2.0, 3.0])
    assert torch.equal(model(True, x), -x)
    assert torch.equal(model(x=x, c=torch.tensor(False)), x.abs())
    assert isinstance(model(False, x.numpy()), np.ndarray)


class Foreign:
    """An array of a library that keeps the array-API standard."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: object) -> object:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.tensor.__dlpack_device__()

    def __array_namespace__(self, *, api_version: str | None = None) -> object:
        return SimpleNamespace(from_dlpack=lambda other: Foreign(torch.from_dlpack(other)))


def test_arrays_of_other_libraries_come_back_as_they_are():
    x = torch.tensor([1.0, -2.0, 3.0])
    result = daceml.ONNXModel(parse(BRANCH))(True, Foreign(x))
    assert isinstance(result, Foreign) and torch.equal(result.tensor, -x)
    parts = daceml.ONNXModel(parse(PIECES))(Foreign(torch.tensor([0.0, 2, 0, 3])))
    assert [type(part) for part in parts] == [Foreign, Foreign] and parts[1].tensor.tolist() == [0, 3]


def test_arrays_that_cannot_be_read_are_named():
    with raises(CallError, "'x'", "Foreign", "DLPack", exact=False):  # with torch's reason
        daceml.ONNXModel(parse(BRANCH))(True, Foreign(torch.ones(3).to_sparse()))


def test_sizes_that_depend_on_data_and_sequences():
    x = torch.tensor([0.0, 2, 0, 3])
    assert daceml.ONNXModel(parse(OPEN))(x).tolist() == [[1, 3]]
    assert [part.tolist() for part in daceml.ONNXModel(parse(PIECES))(x)] == [[0, 2], [0, 3]]


def test_sequences_whose_sizes_inference_rejects():
    """It tries some sizes of n, and the parts do not add up to any of them."""
    text = (
        "g (float[n] x) => (int64 y) { k = Constant <value = int64[2] {0, 0}> () s = SplitToSequence (x, k) "
    )
    model = daceml.ONNXModel(parse(text + "y = SequenceLength (s) }"))
    assert model(torch.zeros(0)).item() == 2
    with raises(UnheldValueError, "'s'", "sequence"):
        _ = model.sdfg


def test_explaining_says_why_nothing_is_compiled():
    with raises(ControlFlowError, "If", "then_branch"):
        _ = daceml.ONNXModel(parse(BRANCH)).sdfg
    with raises(UnheldValueError, "string"):
        _ = daceml.ONNXModel(parse(STRINGS)).program


def test_calls_that_do_not_fit():
    model = daceml.ONNXModel(parse(BRANCH))
    x = np.ones(3, np.float32)
    for args, kwargs in (((True,), {}), ((True, x, x), {}), ((True, x), {"z": x})):
        with raises(CallError, "c, x"):
            model(*args, **kwargs)
    with raises((CallError, ExecutionError), "ONNX Runtime", exact=False):
        model(True, np.ones(4, np.float32))


def test_no_fallback_means_the_refusal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DACEML_FALLBACK", "none")
    config.cache_clear()
    try:
        with raises(ControlFlowError, "If"):
            daceml.ONNXModel(parse(BRANCH))(True, np.ones(3, np.float32))
    finally:
        config.cache_clear()


def test_what_onnxruntime_cannot_run_either_has_both_reasons():
    text = BRANCH.replace("Neg(r)", "BitCast<to = 1>(r)")
    with raises(NoImplementationError, "If", "onnxruntime", "BitCast", exact=False):
        daceml.ONNXModel(parse(text))(True, np.ones(3, np.float32))


def test_operators_of_machine_learning():
    model = parse("g (float[2, 3] x) => (float[2, 3] y) { y = ai.onnx.ml.Binarizer<threshold = 0.5>(x) }")
    model.opset_import.add(domain="ai.onnx.ml", version=3)
    x = torch.tensor([[0.1, 0.6, 0.5], [2, -1, 0.7]])
    assert torch.equal(daceml.ONNXModel(model)(x), (x > 0.5).float())

"""Sequences of a batch, each reversed up to its length."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from daceml.errors import ExecutionError
from tests.onnx_ops.native.single_node import Case, Outcome, random
from tests.support.golden import raises
from tests.support.operator_programs import program

X = random(5, 3, 2)


def reversed_(x: np.ndarray, lengths: np.ndarray, time: int, batch: int) -> Case:
    expected = np.moveaxis(x, (time, batch), (0, 1)).copy()
    for b, n in enumerate(lengths):
        expected[:n, b] = expected[:n, b][::-1]
    return Case(
        op="ReverseSequence",
        inputs=[x, lengths],
        attributes={"time_axis": time, "batch_axis": batch},
        expected=[np.moveaxis(expected, (0, 1), (time, batch))],
    )


CASES = {
    "time first": reversed_(X, np.array([5, 1, 4]), 0, 1),
    "batch first": reversed_(X, np.array([2, 3, 1, 0, 2]), 1, 0),
    "one step": reversed_(X[:1], np.array([1, 0, 1]), 0, 1),
}


@pytest.mark.parametrize("title", CASES)
def test_values(outcome: Outcome) -> None:
    outcome.check()


def test_a_length_beyond_the_sequence_is_an_error() -> None:
    text = "g (float[5, 3] X, int64[3] L) => (float[5, 3] Y) { Y = ReverseSequence (X, L) }"
    compiled, x = program(text, ("native",)), torch.randn(5, 3)
    assert torch.equal(compiled([x, torch.tensor([5, 5, 5])])[0], x.flip(0))
    with raises(ExecutionError, "[0, 6)"):
        compiled([x, torch.tensor([5, 6, 5])])

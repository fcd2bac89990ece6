"""Calls for which there is not enough memory: a named error with the bytes, and later calls are right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import OutOfMemoryError
from daceml.runtime.memory_errors import memory_error
from tests.support.golden import raises

FEW, MANY = 30, 2_000_000  # rows, of which there are the squares


class Outer(nn.Module):
    """The result itself is too large."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.reshape(1, -1)


class Total(nn.Module):
    """What is computed in between is too large."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh((x @ self.weight) @ x.t()).softmax(1).sum()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", [Outer, Total])
def test_too_large_a_call_is_a_memory_error_and_the_next_one_works(kind: type[nn.Module], training: bool):
    eager = kind()
    compiled = daceml.compile(eager, dynamic=True)
    few, many = torch.ones(FEW, 1), torch.ones(MANY, 1)
    with torch.set_grad_enabled(training):
        compiled(torch.ones(FEW - 1, 1))
        expected = compiled(few)
        for _ in range(2):
            with raises(OutOfMemoryError, "there is no memory for", "bytes are free", exact=False) as caught:
                compiled(many)
            assert isinstance(caught.value, MemoryError) and isinstance(caught.value, RuntimeError)
            assert torch.equal(compiled(few), expected) and torch.allclose(expected, eager(few))


def test_a_loaded_model_says_so_too(tmp_path: Path):
    x = torch.ones(FEW, 1)
    daceml.export(Outer().eval(), x, to=tmp_path / "outer", dynamic=True)
    loaded = daceml.load(tmp_path / "outer")
    with raises(OutOfMemoryError, str(4 * MANY * MANY), "bytes are free", exact=False):
        loaded(torch.ones(MANY, 1))
    assert torch.equal(loaded(x), Outer()(x))


@pytest.mark.parametrize(
    ("said", "memory"),
    [
        ("there are no 100 bytes for the workspace", True),
        ("CUDA out of memory. Tried to allocate 20.00 GiB.", True),
        ("aten::mm failed: DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.", True),
        ("weight 'memory' has another element type than the program was compiled for", False),
        ("index 12 is outside", False),
    ],
)
def test_other_failures_are_not_of_memory(said: str, memory: bool):
    error = memory_error(said, what="a call failed", where="here", device=torch.device("cpu"))
    assert (error is not None) == memory
    if error is not None:
        assert said in str(error)

"""Flags of torch that its kernels read at each call: none of them is part of a program's key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from daceml.compiler.guards import call_key
from daceml.compiler.keys.program_key import _surroundings  # pyright: ignore[reportPrivateUsage]

FLAGS: list[tuple[Any, str]] = [
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cudnn, "benchmark"),
]


@pytest.fixture(params=FLAGS, ids=["products in TF32", "convolutions in TF32", "benchmark"])
def turned(request: pytest.FixtureRequest) -> Iterator[tuple[Any, str]]:
    owner, name = request.param
    before = getattr(owner, name)
    yield owner, name
    setattr(owner, name, before)


def test_a_flag_that_kernels_read_makes_no_other_program(turned: tuple[Any, str]):
    owner, name = turned
    x = torch.randn(3, 4)
    before = call_key([x]), _surroundings()
    setattr(owner, name, not getattr(owner, name))
    assert (call_key([x]), _surroundings()) == before

"""The comparison at several batches, with compilers that handle some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.models.reduced import REDUCED
from benchmarks.parity_dynamic import dynamic, reason_of
from daceml.errors import CallError


def exact(module: nn.Module, dynamic_shapes: Any) -> Callable[..., Any]:
    return module


def refusing(*batches: int) -> Callable[[nn.Module, Any], Callable[..., Any]]:
    """A compiler whose programs do not run at these batches."""

    def compile_dynamic(module: nn.Module, dynamic_shapes: Any) -> Callable[..., Any]:
        def call(x: torch.Tensor) -> Any:
            if len(x) in batches:
                raise CallError(f"batch {len(x)} is refused", why="it is in the list", fix="take another")
            return module(x)

        return call

    return compile_dynamic


def one_variant(compiled: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> int:
    return 1


def test_every_batch_is_compared():
    seen = dynamic(REDUCED["mbconv"], exact, one_variant)
    assert [tensor.name for tensor in seen.accuracy.tensors] == [
        f"batch{batch}.output" for batch in (2, 1, 3, 8, 5)
    ]
    assert all(bar.met for bar in seen.bars())


def test_a_batch_that_fails_is_named_and_the_others_are_compared():
    seen = dynamic(REDUCED["mbconv"], refusing(1), one_variant)
    assert seen.failed == {1: "CallError: [DML203] batch 1 is refused why: it is in the list"}
    assert len(seen.accuracy.tensors) == 4
    assert [bar.met for bar in seen.bars()] == [False, True, True, True]
    assert seen.variants == 1


def test_nothing_is_compared_if_the_first_batch_fails():
    with pytest.raises(CallError, match="batch 2 is refused"):
        dynamic(REDUCED["mbconv"], refusing(2), one_variant)


def test_a_second_variant_misses_a_bar():
    seen = dynamic(REDUCED["mish"], exact, lambda compiled, calls: len(calls))
    assert seen.variants == 5
    assert [bar.met for bar in seen.bars()] == [True, True, True, False]


def test_the_reason_of_an_error_of_python_has_its_kind():
    assert reason_of(KeyError("x")) == "KeyError: 'x'"

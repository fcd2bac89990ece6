"""The comparison with eager, with compilers that are right and slightly wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.models.reduced import REDUCED
from benchmarks.parity_static import inference


def exact(module: nn.Module) -> Callable[..., Any]:
    return module


def off_by(relative: float) -> Callable[[nn.Module], Callable[..., Any]]:
    """A compiler whose results are too large by `relative`."""

    def compile_module(module: nn.Module) -> Callable[..., Any]:
        return lambda *inputs: module(*inputs) * (1 + relative)

    return compile_module


def no_fallback(compiled: Callable[..., Any], inputs: tuple[Any, ...]) -> int:
    return 0


def test_eager_itself_is_on_par():
    seen = inference(REDUCED["mish"], exact, no_fallback, seeds=(0, 1))
    assert seen.accuracy.passed
    assert seen.accuracy.median_over_eager == 1.0
    assert [tensor.name for tensor in seen.accuracy.tensors] == ["seed0.output", "seed1.output"]
    assert all(bar.met for bar in seen.bars())


def test_lists_of_indices_are_inputs_like_others():
    seen = inference(REDUCED["dlrm"], exact, no_fallback, seeds=(0,))
    assert seen.accuracy.median_over_eager == 1.0
    assert 0 < seen.accuracy.tensors[0].eager_error < 1e-6


def test_a_wrong_result_misses_two_bars():
    seen = inference(REDUCED["mish"], off_by(1e-4), no_fallback, seeds=(0,))
    assert not seen.accuracy.passed
    assert [bar.met for bar in seen.bars()] == [False, False, True]
    assert "seed0.output 1.00e-04 >" in seen.bars()[0].note


def test_a_node_left_to_onnxruntime_misses_a_bar():
    seen = inference(REDUCED["mish"], exact, lambda compiled, inputs: 1, seeds=(0,))
    assert [bar.met for bar in seen.bars()] == [True, True, False]


def test_under_autocast_eager_and_compiled_run_in_bfloat16_and_the_reference_in_float64():
    regions: list[bool] = []

    def watched(module: nn.Module) -> Callable[..., Any]:
        def call(*inputs: torch.Tensor) -> Any:
            regions.append(torch.is_autocast_enabled("cpu"))
            return module(*inputs)

        return call

    seen = inference(REDUCED["bert_autocast"], watched, no_fallback, seeds=(0,))
    assert regions == [True]
    assert seen.accuracy.median_over_eager == 1.0
    assert 1e-3 < seen.accuracy.tensors[0].eager_error < 1e-1

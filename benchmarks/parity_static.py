"""One network compiled for the sizes of its inputs, compared with eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.bars import Bar
from benchmarks.metric import MEDIAN_OVER_EAGER, Accuracy, compare
from benchmarks.models import ModelSpec
from benchmarks.models.spec import as_float64, in_float64
from benchmarks.outputs import named_outputs

CompileFunction = Callable[[nn.Module], Callable[..., Any]]
# From what a compile function returned, and inputs.
CountFunction = Callable[[Callable[..., Any], tuple[Any, ...]], int]


@dataclass(frozen=True, kw_only=True)
class Parity:
    """What was seen of one network.

    Attributes:
        model: its name.
        accuracy: over all tensors of all seeds.
        onnxruntime_nodes: operators that neither daceml nor PyTorch's kernels could run.
    """

    model: str
    accuracy: Accuracy
    onnxruntime_nodes: int

    def bars(self) -> list[Bar]:
        return [
            *accuracy_bars(self.model, self.accuracy),
            Bar(name=f"{self.model}: nodes left to onnxruntime", figure=self.onnxruntime_nodes, limit=0),
        ]

    def row(self) -> dict[str, Any]:
        return {
            "model": self.model,
            **accuracy_row(self.accuracy),
            "onnxruntime_nodes": self.onnxruntime_nodes,
        }

    def line(self) -> str:
        return f"{accuracy_line(self.accuracy)}, {self.onnxruntime_nodes} onnxruntime nodes"


def inference(
    spec: ModelSpec,
    compile_module: CompileFunction,
    count_onnxruntime: CountFunction,
    *,
    seeds: Sequence[int],
) -> Parity:
    """Compare a compiled network with eager in float32 and float64, for weights and inputs of each seed."""
    parts: list[Accuracy] = []
    nodes = 0
    for seed in seeds:
        module, inputs, name = spec.module(seed), spec.example(seed), f"seed{seed}"
        compiled = compile_module(module)
        # first of all: what cannot be compiled should not cost a reference
        with torch.no_grad(), spec.casting():
            results = named_outputs(compiled(*inputs), name)
            nodes = max(nodes, count_onnxruntime(compiled, inputs))
        parts.append(compare_with_eager(spec, module, inputs, results, name))
    return Parity(model=spec.name, accuracy=Accuracy.joined(parts), onnxruntime_nodes=nodes)


def compare_with_eager(
    spec: ModelSpec, module: nn.Module, inputs: tuple[Any, ...], results: dict[str, torch.Tensor], name: str
) -> Accuracy:
    """Named results of one call beside eager's, and both beside those of a copy in float64."""
    with torch.no_grad():
        with spec.casting():
            eager = named_outputs(module(*inputs), name)
        reference = named_outputs(in_float64(module)(*as_float64(inputs)), name)
    return compare(results, eager, reference, depth=spec.depth)


def accuracy_bars(what: str, accuracy: Accuracy) -> list[Bar]:
    """No tensor outside its limit, and the median error near eager's."""
    return [
        Bar(
            name=f"{what}: tensors outside the error limit",
            figure=len(accuracy.failures),
            limit=0,
            note="; ".join(
                tensor.reason or f"{tensor.name} {tensor.error:.2e} > {tensor.limit:.2e}"
                for tensor in accuracy.failures
            ),
        ),
        Bar(
            name=f"{what}: median error over eager's",
            figure=accuracy.median_over_eager,
            limit=MEDIAN_OVER_EAGER,
            note=f"n={len(accuracy.tensors)}",
        ),
    ]


def accuracy_row(accuracy: Accuracy) -> dict[str, Any]:
    """Plain values for json.dumps."""
    tensors = accuracy.tensors
    return {
        "passed": accuracy.passed,
        "median_over_eager": accuracy.median_over_eager,
        "median_error": median(tensor.error for tensor in tensors),
        "median_eager_error": median(tensor.eager_error for tensor in tensors),
        "tensors": [
            {
                "name": tensor.name,
                "error": tensor.error,
                "eager_error": tensor.eager_error,
                "limit": tensor.limit,
                "passed": tensor.passed,
                "reason": tensor.reason,
            }
            for tensor in tensors
        ],
    }


def accuracy_line(accuracy: Accuracy) -> str:
    """For a terminal."""
    tensors = accuracy.tensors
    error, eager = (median(tensor.error for tensor in tensors), median(t.eager_error for t in tensors))
    return f"error {error:.2e}, eager {eager:.2e}, {accuracy.median_over_eager:.2f} times eager's"

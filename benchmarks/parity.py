"""Whether compiled networks give PyTorch's numbers: python -m benchmarks.parity --check."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks import command
from benchmarks.bars import Bar
from benchmarks.metric import MEDIAN_OVER_EAGER, Accuracy, compare
from benchmarks.models import MODELS, ModelSpec
from benchmarks.models.spec import in_float64

SEEDS = (0, 1, 2)

CompileFunction = Callable[[nn.Module], Callable[..., Any]]
CountFunction = Callable[[nn.Module, tuple[torch.Tensor, ...]], int]


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
        tensors = self.accuracy.tensors
        return [
            Bar(
                name=f"{self.model}: tensors outside the error limit",
                figure=len(self.accuracy.failures),
                limit=0,
                note="; ".join(
                    tensor.reason or f"{tensor.name} {tensor.error:.2e} > {tensor.limit:.2e}"
                    for tensor in self.accuracy.failures
                ),
            ),
            Bar(
                name=f"{self.model}: median error over eager's",
                figure=self.accuracy.median_over_eager,
                limit=MEDIAN_OVER_EAGER,
                note=f"n={len(tensors)}",
            ),
            Bar(name=f"{self.model}: nodes left to onnxruntime", figure=self.onnxruntime_nodes, limit=0),
        ]

    def row(self) -> dict[str, Any]:
        tensors = self.accuracy.tensors
        return {
            "model": self.model,
            "passed": self.accuracy.passed,
            "median_over_eager": self.accuracy.median_over_eager,
            "median_error": median(tensor.error for tensor in tensors),
            "median_eager_error": median(tensor.eager_error for tensor in tensors),
            "onnxruntime_nodes": self.onnxruntime_nodes,
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


def inference(
    spec: ModelSpec,
    compile_module: CompileFunction,
    count_onnxruntime: CountFunction,
    *,
    seeds: Sequence[int] = SEEDS,
) -> Parity:
    """Compare a compiled network with eager in float32 and float64, for weights and inputs of each seed."""
    parts: list[Accuracy] = []
    nodes = 0
    for seed in seeds:
        module, inputs = spec.module(seed), spec.example(seed)
        with torch.no_grad():
            eager = named_outputs(module(*inputs), seed)
            reference = named_outputs(in_float64(module)(*(as_float64(tensor) for tensor in inputs)), seed)
            results = named_outputs(compile_module(module)(*inputs), seed)
        parts.append(compare(results, eager, reference, depth=spec.depth))
        nodes = max(nodes, count_onnxruntime(module, inputs))
    return Parity(model=spec.name, accuracy=Accuracy.joined(parts), onnxruntime_nodes=nodes)


def as_float64(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in float64; indices and masks stay what they are."""
    return tensor.double() if tensor.is_floating_point() else tensor


def named_outputs(outputs: Any, seed: int) -> dict[str, torch.Tensor]:
    """Every tensor in what a module returned, with a name that says where it stood."""
    found: dict[str, torch.Tensor] = {}

    def visit(value: Any, path: str) -> None:
        if isinstance(value, torch.Tensor):
            found[path] = value
        elif isinstance(value, Mapping):
            for key, entry in value.items():
                visit(entry, f"{path}.{key}")
        elif isinstance(value, list | tuple):
            for index, entry in enumerate(value):
                visit(entry, f"{path}.{index}")

    visit(outputs, f"seed{seed}.output")
    return found


def compile_with_daceml(module: nn.Module) -> Callable[..., Any]:
    import daceml

    return daceml.compile(module, backward=False)


def count_with_daceml(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> int:
    import daceml

    return daceml.explain(module, *inputs).counts["onnxruntime"]


def main(
    arguments: Sequence[str] | None = None,
    *,
    compile_module: CompileFunction = compile_with_daceml,
    count_onnxruntime: CountFunction = count_with_daceml,
) -> int:
    parser = command.parser("Compare compiled networks with eager PyTorch in float32 and float64.")
    parser.add_argument("--mode", choices=("inference",), default="inference")
    parser.add_argument(
        "--models", default=",".join(MODELS), help=f"some of {', '.join(MODELS)}, with commas between"
    )
    options = parser.parse_args(arguments)
    names = options.models.split(",")
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"no such model: {', '.join(unknown)}; there are {', '.join(MODELS)}")

    seeds = SEEDS[:1] if options.quick else SEEDS
    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    for name in names:
        seen = inference(MODELS[name], compile_module, count_onnxruntime, seeds=seeds)
        rows.append(seen.row())
        bars.extend(seen.bars())
        print(
            f"{name:<10} error {rows[-1]['median_error']:.2e}, eager {rows[-1]['median_eager_error']:.2e},"
            f" {seen.accuracy.median_over_eager:.2f} times eager's,"
            f" {seen.onnxruntime_nodes} onnxruntime nodes",
            flush=True,
        )
    return command.finish("parity", options, rows, bars)


if __name__ == "__main__":
    sys.exit(main())

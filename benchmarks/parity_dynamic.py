"""One network compiled once with an open batch size, compared with eager at several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from benchmarks.bars import Bar
from benchmarks.metric import Accuracy
from benchmarks.models import ModelSpec
from benchmarks.outputs import named_outputs
from benchmarks.parity_static import accuracy_bars, accuracy_line, accuracy_row, compare_with_eager

# The batch of the first call, which compiles, then those of later ones; torch.export by itself treats 1 as a
# case of its own.
BATCHES = (2, 1, 3, 8, 5)

# A module and torch.export's dynamic_shapes.
CompileDynamic = Callable[[nn.Module, Any], Callable[..., Any]]
# Of what a compile function returned and the inputs of several calls: the variants that they reach.
CountVariants = Callable[[Callable[..., Any], Sequence[tuple[Any, ...]]], int]


@dataclass(frozen=True, kw_only=True)
class DynamicParity:
    """What was seen of one network with an open batch size.

    Attributes:
        model: its name.
        accuracy: over all tensors of all batches that ran.
        variants: programs that these batches needed.
        failed: batch -> why it could not run.
    """

    model: str
    accuracy: Accuracy
    variants: int
    failed: dict[int, str] = field(default_factory=dict[int, str])

    def bars(self) -> list[Bar]:
        what = f"{self.model}, open batch"
        note = "; ".join(f"batch {batch}: {why}" for batch, why in self.failed.items())
        return [
            Bar(name=f"{what}: batches that could not run", figure=len(self.failed), limit=0, note=note),
            *accuracy_bars(what, self.accuracy),
            Bar(name=f"{what}: variants compiled", figure=self.variants, limit=1),
        ]

    def row(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "case": "open batch",
            "batches": list(BATCHES),
            **accuracy_row(self.accuracy),
            "variants": self.variants,
            "failed": {str(batch): why for batch, why in self.failed.items()},
        }

    def line(self) -> str:
        failed = f", failed at batch {', '.join(map(str, self.failed))}" if self.failed else ""
        return f"{accuracy_line(self.accuracy)}, {self.variants} variants{failed}"


def dynamic(
    spec: ModelSpec,
    compile_dynamic: CompileDynamic,
    count_variants: CountVariants,
    *,
    batches: Sequence[int] = BATCHES,
    seed: int = 0,
) -> DynamicParity:
    """Compile a network with an open batch at the first of `batches`, and compare it with eager at each.

    Raises:
        Exception: the first batch could not be compiled or run.
    """
    module = spec.module(seed)
    examples = {batch: spec.example(seed, batch=batch) for batch in batches}
    compiled = compile_dynamic(module, spec.dynamic_shapes(examples[batches[0]]))
    results: dict[int, dict[str, torch.Tensor]] = {}
    failed: dict[int, str] = {}
    with torch.no_grad(), spec.casting():
        for batch, inputs in examples.items():
            try:
                results[batch] = named_outputs(compiled(*inputs), f"batch{batch}")
            except Exception as error:
                if batch == batches[0]:
                    raise
                failed[batch] = reason_of(error)
        variants = count_variants(compiled, [examples[batch] for batch in results])
    parts = [
        compare_with_eager(spec, module, examples[batch], found, f"batch{batch}")
        for batch, found in results.items()
    ]
    return DynamicParity(model=spec.name, accuracy=Accuracy.joined(parts), variants=variants, failed=failed)


def reason_of(error: Exception) -> str:
    """An error in one line: its kind, and what it says without the advice."""
    lines = [line for line in str(error).splitlines() if not line.lstrip().startswith("fix:")]
    return f"{type(error).__name__}: {' '.join(' '.join(lines).split())}"[:600]

"""Automatic mixed precision: kernels that compute use tensor cores, those that move data move half of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from daceml.simulation.graph import Mask, TaskGraph
from daceml.simulation.primitives.select import select
from daceml.simulation.task import Phase, TaskKind
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.precision import Precision, lacking, precisions, scaled, share_of_products

_ALREADY = 0.9  # of the time of products


@dataclass(frozen=True, kw_only=True)
class AutomaticMixedPrecision(Optimization):
    """Float32 kernels in float16 or bfloat16.

    Attributes:
        dtype: the 16-bit format that autocast takes.
        compute_speedup: of products and convolutions.
        tf32_speedup: of those that use tensor cores already, on float32 rounded to 19 bits.
        memory_speedup: of everything else that a device does, bound by memory.
        floor_us: of each kernel, what does not get faster.
    """

    option: ClassVar[str] = "amp"
    title: ClassVar[str] = "automatic mixed precision"
    above_zero: ClassVar[tuple[str, ...]] = ("compute_speedup", "tf32_speedup", "memory_speedup")
    family: ClassVar[str] = "precision"
    source: ClassVar[str] = (
        "Zhu et al., Daydream (ATC '20), Algorithm 3: 3 and 2 times;"
        " TF32 by the peaks of NVIDIA's A100 data sheet"
    )

    dtype: Literal["fp16", "bf16"] = "fp16"
    compute_speedup: Estimate = Estimate(3.0, fast=4.0, slow=2.0)
    tf32_speedup: Estimate = Estimate(1.7, fast=2.0, slow=1.2)
    memory_speedup: Estimate = Estimate(2.0, fast=2.0, slow=1.4)
    floor_us: Estimate = Estimate(1.5, fast=0.0, slow=3.0)

    @property
    def may_cost(self) -> bool:
        return min(one.likely for one in (self.compute_speedup, self.tf32_speedup, self.memory_speedup)) < 1

    @property
    def number_format(self) -> str:
        return self.dtype

    def check(self, graph: TaskGraph) -> str | None:
        if (reason := lacking(graph, self.dtype)) is not None:
            return reason
        if not (graph.tasks.kind == TaskKind.KERNEL).any():
            return "the run has no kernels of a device"
        model = self._model(graph)
        if not (model & ~(precisions(graph)["half"] | precisions(graph)["fp8"])).any():
            return "every kernel of the run computes in half precision already"
        share = share_of_products(graph, model, "half", "fp8")
        if share > _ALREADY:
            return f"products and convolutions compute in half precision already ({share:.0%} of their time)"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        memory = self.memory_speedup.likely
        products: dict[Precision, float] = {
            "float32": self.compute_speedup.likely,
            "tf32": self.tf32_speedup.likely,
        }
        others: dict[Precision, float] = {"float32": memory, "tf32": memory}
        return scaled(
            graph, self._model(graph), compute=products, memory=others, floor_us=self.floor_us.likely
        )

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        return (
            "casts between the types, and what autocast takes on the CPU, are not added",
            "the optimizer's kernels stay in float32",
        )

    def _model(self, graph: TaskGraph) -> Mask:
        return select(graph, kind=TaskKind.KERNEL, phase=(Phase.FORWARD, Phase.BACKWARD, Phase.OTHER))

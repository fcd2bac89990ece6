"""Everything in a format of fewer bits: weights, activations and products in bfloat16 or 8 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from daceml.simulation.graph import TaskGraph
from daceml.simulation.primitives.select import select
from daceml.simulation.task import TaskKind
from daceml.simulation.whatif.optimization import Estimate, Optimization
from daceml.simulation.whatif.precision import Precision, lacking, precisions, scaled, share_of_products

_ALREADY = 0.9  # of the time of products
_THERE: dict[str, tuple[Precision, ...]] = {"bf16": ("half", "fp8"), "fp8": ("fp8",)}


@dataclass(frozen=True, kw_only=True)
class LowPrecision(Optimization):
    """Kernels in bfloat16, or products in 8 bits with everything else in bfloat16.

    Attributes:
        dtype: "bf16" or "fp8".
        compute_speedup, tf32_speedup: of products to bfloat16, from float32 and from TF32.
        fp8_speedup: of products from bfloat16 to 8 bits, their scaling included.
        memory_speedup: of everything else that is in float32.
        floor_us: of each kernel, what does not get faster.
    """

    option: ClassVar[str] = "low-precision"
    title: ClassVar[str] = "low precision"
    above_zero: ClassVar[tuple[str, ...]] = (
        *("compute_speedup", "tf32_speedup", "fp8_speedup", "memory_speedup"),
    )
    family: ClassVar[str] = "precision"
    source: ClassVar[str] = (
        "Micikevicius et al., FP8 Formats for Deep Learning (2022);"
        " peaks of NVIDIA's H100 data sheet: 8 bits at most twice as fast as 16"
    )

    dtype: Literal["bf16", "fp8"] = "bf16"
    compute_speedup: Estimate = Estimate(3.0, fast=6.0, slow=2.0)
    tf32_speedup: Estimate = Estimate(1.7, fast=2.0, slow=1.2)
    fp8_speedup: Estimate = Estimate(1.4, fast=1.9, slow=1.0)
    memory_speedup: Estimate = Estimate(2.0, fast=2.0, slow=1.4)
    floor_us: Estimate = Estimate(1.5, fast=0.0, slow=3.0)

    @property
    def may_cost(self) -> bool:
        speedups = (self.compute_speedup, self.tf32_speedup, self.fp8_speedup, self.memory_speedup)
        return min(one.likely for one in speedups) < 1

    @property
    def number_format(self) -> str:
        return self.dtype

    def check(self, graph: TaskGraph) -> str | None:
        kernels = select(graph, kind=TaskKind.KERNEL)
        if self.dtype not in _THERE:
            return f"{self.dtype!r} is none of {', '.join(_THERE)}"
        if (reason := lacking(graph, self.dtype)) is not None:
            return reason
        if not kernels.any():
            return "the run has no kernels of a device"
        share = share_of_products(graph, kernels, *_THERE[self.dtype])
        if share > _ALREADY:
            return f"products and convolutions compute in {self.dtype} already ({share:.0%} of their time)"
        known = precisions(graph)
        if not any((kernels & known[name]).any() for name in known if name not in _THERE[self.dtype]):
            return f"every kernel of the run computes in {self.dtype} already"
        return None

    def apply(self, graph: TaskGraph) -> TaskGraph:
        more = self.fp8_speedup.likely if self.dtype == "fp8" else 1.0
        products: dict[Precision, float] = {
            "float32": self.compute_speedup.likely * more,
            "tf32": self.tf32_speedup.likely * more,
            "half": more,
        }
        others: dict[Precision, float] = {"float32": self.memory_speedup.likely}
        kernels = select(graph, kind=TaskKind.KERNEL)
        return scaled(graph, kernels, compute=products, memory=others, floor_us=self.floor_us.likely)

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        assumed = ["the optimizer updates weights in the same format"]
        if self.dtype == "fp8":
            assumed.append("finding the scales of 8-bit tensors is part of the products' time")
        return tuple(assumed)

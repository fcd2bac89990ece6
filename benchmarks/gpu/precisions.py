"""The precisions that a device computes in, and how far from float64 a result may be in each."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from benchmarks.metric import EPS_PER_SQRT_DEPTH, ERROR_OVER_EAGER, Accuracy, TensorError, tensor_error


@dataclass(frozen=True, kw_only=True)
class Precision:
    """How numbers are stored and multiplied.

    Attributes:
        dtype: of weights, inputs and results.
        eps: the distance of 1 to the next number of the type in which products are formed.
        eps_per_sqrt_depth: errors are independent roundings, so they grow like a random walk; this is how
            many of them each operator on the longest path may contribute, whatever eager does.
        tf32: whether products of float32 round their operands to 10 bits of mantissa.
    """

    name: str
    dtype: torch.dtype
    eps: float
    eps_per_sqrt_depth: float
    tf32: bool = False

    def floor(self, depth: int) -> float:
        """The error that rounding explains in a network of this depth."""
        return self.eps_per_sqrt_depth * self.eps * math.sqrt(depth)

    @property
    def limit_text(self) -> str:
        """The tolerance, for tables."""
        return (
            f"max({ERROR_OVER_EAGER:g} x eager's, {self.eps_per_sqrt_depth:g} x {self.eps:.2g} x sqrt(depth))"
        )


# Of float32 the limit is that of `benchmarks.parity`. The others are coarse enough for a limit of so many
# roundings to hide a wrong operator: an eps has to do, half for what an operator stores and half for sums of
# few elements in which larger ones cancel.
PRECISIONS: dict[str, Precision] = {
    entry.name: entry
    for entry in (
        Precision(
            name="fp32", dtype=torch.float32, eps=2.0**-23, eps_per_sqrt_depth=EPS_PER_SQRT_DEPTH
        ),
        Precision(name="tf32", dtype=torch.float32, eps=2.0**-10, eps_per_sqrt_depth=1.0, tf32=True),
        Precision(name="bf16", dtype=torch.bfloat16, eps=2.0**-7, eps_per_sqrt_depth=1.0),
        Precision(name="fp16", dtype=torch.float16, eps=2.0**-10, eps_per_sqrt_depth=1.0),
        # weights, inputs and results in float32, computed as autocast says
        Precision(name="autocast", dtype=torch.float32, eps=2.0**-7, eps_per_sqrt_depth=1.0),
    )
}  # fmt: skip


@contextmanager
def computing_in(precision: Precision) -> Generator[None]:
    """Let torch's products and convolutions of float32 use TF32, or not; restores what was set."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if precision.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = precision.tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions


def compare(
    results: Mapping[str, torch.Tensor],
    eager: Mapping[str, torch.Tensor],
    reference: Mapping[str, torch.Tensor],
    *,
    precision: Precision,
    depth: int,
) -> Accuracy:
    """Named results beside eager's in the same precision, both against float64, with the precision's limit.

    Raises:
        ValueError: the three do not have the same names; that is a mistake of the caller.
    """
    if not results.keys() == eager.keys() == reference.keys():
        raise ValueError(f"tensors differ: {sorted(results)}, {sorted(eager)}, {sorted(reference)}")
    measured = [
        tensor_error(name, results[name], eager[name], reference[name], depth=depth) for name in results
    ]
    return Accuracy(tensors=tuple(_limited(one, precision.floor(depth)) for one in measured))


def _limited(seen: TensorError, floor: float) -> TensorError:
    """The same error under another limit; whole numbers and tensors of zeros keep theirs."""
    if seen.reason or seen.rounding_limit in (0.0, math.inf):
        return seen
    return replace(seen, limit=max(ERROR_OVER_EAGER * seen.eager_error, floor), rounding_limit=floor)

"""The accuracy metric: how far a result is from float64, beside how far PyTorch's own float32 is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

import torch

ERROR_OVER_EAGER = 3.0  # one tensor may be this many times as far from float64 as eager is
EPS_PER_SQRT_DEPTH = 8.0  # or within this many rounding errors, growing like a random walk with the depth
MEDIAN_OVER_EAGER = 1.5  # and over all tensors the median may not be worse than this


@dataclass(frozen=True, kw_only=True)
class TensorError:
    """One tensor's distance from float64.

    Attributes:
        name: which tensor.
        error: ||y - y64|| / ||y64||; absolute where ||y64|| is 0; infinite where values are missing.
        eager_error: the same for PyTorch's eager result in the same precision.
        limit: the largest error that passes.
        rounding_limit: the part of the limit that rounding explains, whatever eager does.
        unmeasured: elements that are finite in float64 only, so that nothing tells whether they are right.
        reason: why the two cannot be compared, or empty.
    """

    name: str
    error: float
    eager_error: float
    limit: float
    rounding_limit: float = math.inf
    unmeasured: int = 0
    reason: str = ""

    @property
    def passed(self) -> bool:
        return not self.reason and self.error <= self.limit

    @property
    def ill_conditioned(self) -> bool:
        """Whether it passes only because eager is as far from float64 itself."""
        return self.passed and self.error > self.rounding_limit

    @property
    def over_eager(self) -> float:
        """error / eager_error, where 0 / 0 is 1: as good as eager."""
        if self.eager_error == 0.0:
            return 1.0 if self.error == 0.0 else math.inf
        return self.error / self.eager_error


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """All tensors of a comparison."""

    tensors: tuple[TensorError, ...]

    @property
    def median_over_eager(self) -> float:
        return median(tensor.over_eager for tensor in self.tensors) if self.tensors else 1.0

    @property
    def failures(self) -> tuple[TensorError, ...]:
        return tuple(tensor for tensor in self.tensors if not tensor.passed)

    @property
    def passed(self) -> bool:
        return not self.failures and self.median_over_eager <= MEDIAN_OVER_EAGER

    @classmethod
    def joined(cls, parts: Iterable[Accuracy]) -> Accuracy:
        """The tensors of several runs as one comparison, so that the median goes over all of them."""
        return cls(tensors=tuple(tensor for part in parts for tensor in part.tensors))


def compare(
    results: Mapping[str, torch.Tensor],
    eager: Mapping[str, torch.Tensor],
    reference: Mapping[str, torch.Tensor],
    *,
    depth: int,
) -> Accuracy:
    """Compare named results with eager in the same precision and with eager in float64.

    Raises:
        ValueError: the three do not have the same names; that is a mistake of the caller.
    """
    if not results.keys() == eager.keys() == reference.keys():
        raise ValueError(f"tensors differ: {sorted(results)}, {sorted(eager)}, {sorted(reference)}")
    return Accuracy(
        tensors=tuple(
            tensor_error(name, results[name], eager[name], reference[name], depth=depth) for name in results
        )
    )


def tensor_error(
    name: str, result: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor, *, depth: int
) -> TensorError:
    """Measure one tensor; shapes, element types and non-finite values have to be eager's."""
    result, eager, reference = result.detach(), eager.detach(), reference.detach()
    if result.shape != eager.shape:
        return _incomparable(name, f"shape {tuple(result.shape)} instead of {tuple(eager.shape)}")
    if result.dtype != eager.dtype:
        return _incomparable(name, f"element type {result.dtype} instead of {eager.dtype}")
    if not result.is_floating_point():
        equal = torch.equal(result, eager)
        return (
            TensorError(name=name, error=0.0, eager_error=0.0, limit=0.0)
            if equal
            else _incomparable(
                name, f"{int((result != eager).sum())} of {eager.numel()} {eager.dtype} values differ"
            )
        )
    misplaced = _misplaced(result, eager)
    if misplaced:
        return _incomparable(name, f"{misplaced} NaN or infinite values are not where eager has them")

    # Eager's overflows in float32 are finite in float64: only what is finite in both can be measured.
    finite = torch.isfinite(eager) & torch.isfinite(reference)
    unmeasured = int((torch.isfinite(reference) & ~finite).sum())
    truth = reference[finite].double()
    scale = float(torch.linalg.vector_norm(truth))
    error = float(torch.linalg.vector_norm(result[finite].double() - truth))
    eager_error = float(torch.linalg.vector_norm(eager[finite].double() - truth))
    if scale == 0.0:
        # Nothing to be relative to: eager's own absolute error is the only yardstick, and 0 has to stay 0.
        return TensorError(
            name=name,
            error=error,
            eager_error=eager_error,
            limit=ERROR_OVER_EAGER * eager_error,
            rounding_limit=0.0,
            unmeasured=unmeasured,
        )
    floor = EPS_PER_SQRT_DEPTH * torch.finfo(eager.dtype).eps * math.sqrt(depth)
    return TensorError(
        name=name,
        error=error / scale,
        eager_error=eager_error / scale,
        limit=max(ERROR_OVER_EAGER * eager_error / scale, floor),
        rounding_limit=floor,
        unmeasured=unmeasured,
    )


def _misplaced(result: torch.Tensor, eager: torch.Tensor) -> int:
    """How many elements are NaN, +inf or -inf in one of the two but not the same in the other."""
    special = ~(torch.isfinite(result) & torch.isfinite(eager))
    ours, theirs = result[special], eager[special]
    return int((~((ours == theirs) | (torch.isnan(ours) & torch.isnan(theirs)))).sum())


def _incomparable(name: str, reason: str) -> TensorError:
    return TensorError(name=name, error=math.inf, eager_error=0.0, limit=0.0, reason=reason)

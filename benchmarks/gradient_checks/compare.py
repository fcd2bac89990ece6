"""Whether gradients of two implementations are the same but for rounding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

# Of the largest number of a float64 gradient: sums of up to a few hundred terms in another order.
_DOUBLE = 1e-11
# Units in the last place of the largest number of a gradient; in float32 sums have up to a few hundred terms.
_UNITS = {torch.float32: 256, torch.float16: 16, torch.bfloat16: 16}
# As in the parity of networks: another order of the same roundings.
_OVER_EAGER = 3.0

Tensors = Sequence[torch.Tensor | None]


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Results of a function, and the gradients of its tensors; None where a tensor has no gradient."""

    results: Tensors
    gradients: Tensors


def difference(ours: Observed, eager: Observed, reference: Observed) -> str | None:
    """In what the results or gradients differ, or None.

    Args:
        eager: in the same element type.
        reference: in float64.
    """
    for what, a, b, c in (
        ("result", ours.results, eager.results, reference.results),
        ("gradient", ours.gradients, eager.gradients, reference.gradients),
    ):
        if len(a) != len(b):
            return f"{len(a)} {what}s instead of {len(b)}"
        for number, (x, y, exact) in enumerate(zip(a, b, c, strict=True)):
            if (problem := _different(x, y, exact)) is not None:
                return f"{what} {number} {problem}"
    return None


def _different(x: torch.Tensor | None, y: torch.Tensor | None, exact: torch.Tensor | None) -> str | None:
    if x is None or y is None or exact is None:
        return None if x is y else f"is {_title(x)} instead of {_title(y)}"
    if x.dtype != y.dtype or x.shape != y.shape or x.requires_grad != y.requires_grad:
        return f"is {_title(x)} instead of {_title(y)}"
    x, y, exact = x.detach(), y.detach(), exact.detach()
    if not x.is_floating_point():
        return None if torch.equal(x, y) else f"differs in {int((x != y).sum())} of {x.numel()} elements"
    eps = torch.finfo(x.dtype).eps
    special = ~torch.isfinite(y)
    if not torch.equal(~torch.isfinite(x), special) or not torch.equal(
        torch.nan_to_num(x[special], 7.0), torch.nan_to_num(y[special], 7.0)
    ):
        return f"has other NaN or infinities: {_short(x)} instead of {_short(y)}"
    x, y, exact = (t[~special].double() for t in (x, y, exact))
    if not x.numel():
        return None
    unit = _DOUBLE if eps < 1e-10 else _UNITS[_dtype(eps)] * eps
    allowed = max(_OVER_EAGER * float((y - exact).abs().max()), unit * max(1.0, float(exact.abs().max())))
    error = float((x - exact).abs().max())
    if not error <= allowed:
        far = f"is {error / allowed:.3g} times as far away as rounding explains"
        return f"{far}: {_short(x)} instead of {_short(y)}"
    return None


def _dtype(eps: float) -> torch.dtype:
    return next(dtype for dtype in _UNITS if torch.finfo(dtype).eps == eps)


def _title(x: torch.Tensor | None) -> str:
    if x is None:
        return "absent"
    grows = "" if x.requires_grad else " without a gradient"
    return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}{grows}"


def _short(x: torch.Tensor) -> str:
    return str([float(f"{v:.4g}") for v in x.flatten()[:6].tolist()])

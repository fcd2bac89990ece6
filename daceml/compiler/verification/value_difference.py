"""How far the results of two runs of a network are apart, and how far they may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from daceml.runtime.torch_types import DTYPES
from daceml.sdfg.element_codes import torch_code

if TYPE_CHECKING:
    from daceml.sdfg.network import Network

_ROUNDINGS = 4  # of all layers, beside one of the inputs
_SAME = 0.1  # what differs by more is something else, however little it takes


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One array that differs.

    Attributes:
        array: its name.
        amount: root mean square of the difference over that of what was expected, or the share of integers
            or truth values that differ; infinite where shape, type or what is not finite differ.
        limit: the amount allowed.
        kind: the type of its elements.
    """

    array: str
    amount: float
    limit: float
    kind: str

    @property
    def sentence(self) -> str:
        """The difference in words, with the array as the subject."""
        if self.amount == float("inf"):
            return f"has another shape or type, or other infinities and NaN ({self.kind})"
        return f"differs by {self.amount:.1e} of its size, {self.limit:.1e} is allowed ({self.kind})"


def limit_of(network: Network) -> float:
    """Half of the digits of the narrowest floating type in a network; 0 where it has none."""
    types = [DTYPES[torch_code(desc.dtype)] for desc in network.sdfg.arrays.values()]
    return max((torch.finfo(t).eps ** 0.5 for t in types if t.is_floating_point), default=0.0)


def largest_difference(
    found: Mapping[str, torch.Tensor],
    expected: Mapping[str, torch.Tensor],
    limit: float,
    *,
    moved: Callable[[], Mapping[str, torch.Tensor]] | None = None,
) -> Difference | None:
    """The array that differs most, where one differs by more than the limit.

    Of integers and truth values the share of elements that differ counts: where rounding may be seen, so may
    a comparison that it decides. An array that is tiny beside the others may be what rounding leaves of zero:
    it counts as no smaller than the square root of the limit, times the largest one.

    Args:
        moved: gives what is expected of inputs that were rounded once more; asked where an array is beyond
            the limit. Deep networks with statistics of few samples make much of little: whoever rounds
            elsewhere may be some times as far off as that.
    """
    floor = limit**0.5 * max((_size(x) for x in expected.values()), default=0.0)
    worst: Difference | None = None
    for (name, ours), theirs in zip(found.items(), expected.values(), strict=True):
        amount, allowed = _amount(ours, theirs, floor), limit
        if amount > limit and moved is not None:
            allowed = max(limit, min(_ROUNDINGS * _amount(moved()[name], theirs, floor), _SAME))
        if amount > allowed and (worst is None or amount > worst.amount):
            kind = str(theirs.dtype).removeprefix("torch.")
            worst = Difference(array=name.partition(" ")[2] or name, amount=amount, limit=allowed, kind=kind)
    return worst


def _amount(ours: torch.Tensor, theirs: torch.Tensor, floor: float) -> float:
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf")
    if not theirs.is_floating_point():
        return float((ours != theirs).double().mean()) if theirs.numel() else 0.0
    a, b = ours.double(), theirs.double()
    odd = ~(a.isfinite() & b.isfinite())
    if not torch.equal(a[odd].nan_to_num(nan=0.5), b[odd].nan_to_num(nan=0.5)):
        return float("inf")
    apart = _size(torch.where(odd, 0.0, a - b))
    size = max(_size(b), floor)
    return 0.0 if not apart else apart / size if size else float("inf")


def _size(tensor: torch.Tensor) -> float:
    """Root mean square of what is finite."""
    wide = tensor.double()
    finite = wide[wide.isfinite()]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0

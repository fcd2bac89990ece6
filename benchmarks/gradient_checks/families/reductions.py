"""Reductions, norms, cumulative functions, and functions that put in order."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from benchmarks.gradient_checks.draws import Draw, apart, kinked, real, tied, uses
from benchmarks.operators.draws import Chance


def _axes(c: Chance, rank: int) -> dict[str, Any]:
    """No axis, one or several."""
    match c.between(0, 2):
        case 0:
            return {}
        case 1 if rank:
            return {"dim": c.axis(rank), "keepdim": c.one_in(2)}
        case _:
            axes = [a % max(rank, 1) for a in c.axes(rank)]
            return {"dim": tuple(axes) or tuple(range(rank)), "keepdim": c.one_in(2)}


@uses("sum", "mean", "nansum", "nanmean")
def added(c: Chance, name: str) -> Draw:
    shape = c.shape()
    return Draw(call=getattr(torch, name), tensors=[real(c, shape)], attributes=_axes(c, len(shape)))


@uses("amax", "amin")
def extremes(c: Chance, name: str) -> Draw:
    shape = c.shape(empty=False)
    x, away = kinked(c, shape)
    return Draw(call=getattr(torch, name), tensors=[x], attributes=_axes(c, len(shape)), smooth=away)


@uses("max", "min", "median")
def extreme_of_all(c: Chance, name: str) -> Draw:
    x, away = kinked(c, c.shape(empty=False))
    return Draw(call=getattr(torch, name), tensors=[x], smooth=away)


@uses(
    "max of a dimension", "min of a dimension", "median of a dimension", "aminmax", "cummax", "cummin", "mode"
)
def with_positions(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    attributes: dict[str, Any] = {"dim": c.axis(len(shape))}
    function = name.split()[0]
    if not function.startswith("cum"):
        attributes["keepdim"] = c.one_in(2)
    return Draw(call=getattr(torch, function), tensors=[apart(c, shape)], attributes=attributes)


@uses("sort", "topk", "kthvalue", "msort")
def ordered(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    axis = c.axis(len(shape))
    attributes: dict[str, Any] = {"dim": axis}
    if name in ("topk", "kthvalue"):
        attributes["k"] = c.between(1, shape[axis])
    if name in ("sort", "topk"):
        attributes["descending" if name == "sort" else "largest"] = c.one_in(2)
    return Draw(
        call=getattr(torch, name), tensors=[apart(c, shape)], attributes={} if name == "msort" else attributes
    )


@uses("stable sort with ties")
def stable_sort(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    attributes = {"dim": c.axis(len(shape)), "stable": True, "descending": c.one_in(2)}
    return Draw(call=torch.sort, tensors=[tied(c, shape)], attributes=attributes, smooth=False)


@uses("prod", "prod of a dimension")
def product(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3)
    x = tied(c, shape) if c.one_in(3) else real(c, shape)
    attributes = {"dim": c.axis(len(shape)), "keepdim": c.one_in(2)} if name != "prod" else {}
    return Draw(call=torch.prod, tensors=[x], attributes=attributes)


@uses("var", "std", "var_mean", "std_mean")
def spread(c: Chance, name: str) -> Draw:
    shape = tuple(n + 1 for n in c.shape(1, 4, empty=False))
    attributes = {**_axes(c, len(shape)), "correction": c.of((0, 1))}
    return Draw(call=getattr(torch, name), tensors=[real(c, shape)], attributes=attributes)


@uses("logsumexp")
def logsumexp(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 4)
    attributes = _axes(c, len(shape))
    return Draw(call=torch.logsumexp, tensors=[real(c, shape)], attributes=attributes or {"dim": 0})


@uses("norm", "vector_norm", "pnorm of zeros")
def norm(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    order = c.of((1, 2, 3, 0.5, float("inf"), float("-inf"), 0))
    attributes = {**_axes(c, len(shape)), "p" if name == "norm" else "ord": order}
    call = torch.norm if name == "norm" else torch.linalg.vector_norm
    if name != "pnorm of zeros":
        return Draw(call=call, tensors=[apart(c, shape)], attributes=attributes)
    attributes["ord"] = c.of((1, 2, 3, float("inf")))
    return Draw(call=call, tensors=[0 * real(c, shape)], attributes=attributes, smooth=False)


@uses("normalize", "renorm by hand")
def normalize(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    axis = c.axis(len(shape))
    if name == "normalize":
        attributes = {"p": c.of((1.0, 2.0, 3.0)), "dim": axis}
        return Draw(call=functional.normalize, tensors=[apart(c, shape)], attributes=attributes)
    call = lambda x, dim: x / x.norm(dim=dim, keepdim=True).clamp(min=1e-3)  # noqa: E731
    return Draw(call=call, tensors=[apart(c, shape)], attributes={"dim": axis})


@uses("cumsum", "cumprod", "logcumsumexp")
def cumulative(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3)
    x = tied(c, shape) if name == "cumprod" and c.one_in(3) else real(c, shape)
    return Draw(call=getattr(torch, name), tensors=[x], attributes={"dim": c.axis(len(shape))})


@uses("softmax", "log_softmax", "softmin")
def softmax(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 4)
    return Draw(
        call=getattr(functional, name), tensors=[3 * real(c, shape)], attributes={"dim": c.axis(len(shape))}
    )


@uses("softmax with masked rows")
def masked_softmax(c: Chance, name: str) -> Draw:
    shape = c.shape(2, 3, empty=False)
    call = lambda x, mask: x.masked_fill(mask, float("-inf")).softmax(-1)  # noqa: E731
    mask = c.values(shape, "bool")
    mask[..., 0] = False
    return Draw(call=call, tensors=[real(c, shape), mask])


@uses("dist", "cosine_similarity", "pairwise_distance", "cdist")
def distance(c: Chance, name: str) -> Draw:
    shape = c.shape(2, 3, empty=False)
    pair = [real(c, shape), real(c, shape)]
    match name:
        case "dist":
            return Draw(call=torch.dist, tensors=pair, attributes={"p": c.of((1, 2, 3))})
        case "cosine_similarity":
            return Draw(
                call=functional.cosine_similarity, tensors=pair, attributes={"dim": c.axis(len(shape))}
            )
        case "cdist":
            return Draw(call=torch.cdist, tensors=pair, attributes={"p": c.of((1.0, 2.0, 3.0))})
        case _:
            attributes = {"p": c.of((1.0, 2.0)), "keepdim": c.one_in(2)}
            return Draw(call=functional.pairwise_distance, tensors=pair, attributes=attributes)

"""Normalisations and dropout."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from benchmarks.gradient_checks.draws import Draw, real, uses
from benchmarks.operators.draws import Array, Chance


def _affine(c: Chance, shape: tuple[int, ...]) -> list[Array]:
    """Weight and bias, weight alone, or neither."""
    return [real(c, shape), real(c, shape)][: c.of((2, 2, 1, 0))]


@uses("batch_norm in training", "batch_norm in evaluation")
def batch_norm(c: Chance, name: str) -> Draw:
    channels = c.between(1, 4)
    shape = (c.between(2, 4), channels, *c.shape(0, 3, empty=False))
    affine = _affine(c, (channels,))
    attributes = {"eps": c.of((1e-5, 1e-2))}
    if name == "batch_norm in training":
        call = lambda x, *wb, eps: functional.batch_norm(x, None, None, *wb, training=True, eps=eps)  # noqa: E731
        return Draw(call=call, tensors=[real(c, shape), *affine], attributes=attributes)
    moments = [real(c, (channels,)), c.positive((channels,), "float64")]
    call = lambda x, m, v, *wb, eps: functional.batch_norm(x, m, v, *wb, training=False, eps=eps)  # noqa: E731
    tensors = [real(c, shape), *moments, *affine]
    # torch 2.13's backward takes the variances for contiguous ones: it reads what lies between them
    statistics = frozenset({1, 2})
    return Draw(call=call, tensors=tensors, attributes=attributes, fixed=statistics, contiguous=statistics)


@uses("layer_norm", "rms_norm")
def layer_norm(c: Chance, name: str) -> Draw:
    shape = (*c.shape(1, 3), c.between(2, 7))
    normal = shape[c.between(1, len(shape) - 1) :]
    if 0 in normal:
        normal = shape[-1:]
    affine = _affine(c, normal)[: 1 if name == "rms_norm" else 2]
    function = getattr(functional, name)
    call = lambda x, *wb, eps: function(x, normal, *wb, eps=eps)  # noqa: E731
    return Draw(call=call, tensors=[real(c, shape), *affine], attributes={"eps": c.of((1e-5, 1e-2))})


@uses("group_norm", "instance_norm")
def group_norm(c: Chance, name: str) -> Draw:
    groups = c.between(1, 3)
    channels = groups * c.between(1, 3)
    shape = (c.between(1, 3), channels, *(c.between(2, 5) for _ in range(c.between(1, 3))))
    affine = _affine(c, (channels,))
    if name == "group_norm":
        call: Any = lambda x, *wb: functional.group_norm(x, groups, *wb)  # noqa: E731
    else:
        call = lambda x, *wb: functional.instance_norm(x, None, None, *wb)  # noqa: E731
    return Draw(call=call, tensors=[real(c, shape), *affine])


@uses("local_response_norm")
def local_response(c: Chance, name: str) -> Draw:
    attributes = {"size": c.between(1, 4), "alpha": c.of((1e-4, 0.5)), "beta": 0.75}
    return Draw(
        call=functional.local_response_norm,
        tensors=[real(c, (2, c.between(1, 6), 3, 4))],
        attributes=attributes,
    )


@uses("dropout with p=0", "dropout", "dropout2d", "alpha_dropout", "dropout with p=1")
def dropout(c: Chance, name: str) -> Draw:
    shape = c.shape(0, 3, empty=False) if name != "dropout2d" else c.shape(4, 4, empty=False)
    attributes: dict[str, Any] = {"p": c.of((0.1, 0.5, 0.9)), "training": True}
    if name[-3:-1] == "p=":
        attributes["p"] = float(name[-1])
    # an alpha dropout of zero variance, or other masks in other types: float64 only
    function = getattr(functional, name.split()[0])
    return Draw(
        call=function, tensors=[real(c, shape)], attributes=attributes, smooth=False, double_only=True
    )


@uses("multi_head_attention")
def heads(c: Chance, name: str) -> Draw:
    n, length, head, count = c.between(1, 3), c.between(1, 5), c.between(1, 4), c.between(1, 3)
    width = head * count

    def attend(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
        q, k, v = functional.linear(x, w, b).view(n, length, 3, count, head).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v)
        return functional.linear(y.transpose(1, 2).reshape(n, length, width), o)

    shapes = [(n, length, width), (3 * width, width), (3 * width,), (width, width)]
    return Draw(call=attend, tensors=[real(c, s) for s in shapes])

"""Functions that arrange elements anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.gradient_checks.draws import Draw, real, uses
from benchmarks.operators.draws import Chance


@uses("slice", "strided slice", "select", "narrow", "ellipsis and new axis")
def sliced(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 4, empty=False)
    axis = c.axis(len(shape))
    n = shape[axis]
    start, step = c.between(-n, n - 1), c.between(2, 3)
    call: Callable[..., Any]
    match name:
        case "slice":
            call = lambda x: x.movedim(axis, 0)[start:]  # noqa: E731
        case "strided slice":
            call = lambda x: x.movedim(axis, -1)[..., start % n :: step]  # noqa: E731
        case "select":
            call = lambda x: x.select(axis, start)  # noqa: E731
        case "narrow":
            call = lambda x: x.narrow(axis, start % n, n - start % n)  # noqa: E731
        case _:
            call = lambda x: x[..., None, -1:]  # noqa: E731
    return Draw(call=call, tensors=[real(c, shape)])


@uses("flip", "roll", "rot90", "tril", "triu", "diagonal", "diag", "diag_embed", "trace")
def rearranged(c: Chance, name: str) -> Draw:
    shape = c.shape(2, 4)
    attributes: dict[str, Any] = {}
    match name:
        case "flip":
            attributes["dims"] = c.axes(len(shape))
        case "roll":
            axis = c.axis(len(shape))
            attributes = {"shifts": c.between(-5, 5), **({"dims": axis} if c.one_in(2) else {})}
        case "rot90":
            attributes = {"k": c.between(-2, 3), "dims": (0, 1)}
        case "tril" | "triu":
            attributes["diagonal"] = c.between(-3, 3)
        case "diagonal":
            attributes = {"offset": c.between(-2, 2), "dim1": c.of((0, -2)), "dim2": c.of((1, -1))}
            shape = shape if len(shape) != 3 else shape[:2]
        case "diag":
            shape, attributes = c.shape(1, 2), {"diagonal": c.between(-2, 2)}
        case "diag_embed":
            shape, attributes = c.shape(1, 3), {"offset": c.between(-2, 2)}
        case _:
            shape = shape[:2]
    return Draw(call=getattr(torch, name), tensors=[real(c, shape)], attributes=attributes)


@uses("cat", "stack")
def joined(c: Chance, name: str) -> Draw:
    shape = list(c.shape(1, 3))
    axis = c.axis(len(shape))
    tensors: list[np.ndarray[Any, Any]] = []
    for _ in range(c.between(1, 4)):
        if name == "cat":
            shape[axis] = c.size()
        tensors.append(real(c, shape))
    function = getattr(torch, name)
    call = lambda *x, dim: function((*x, x[0]), dim=dim)  # noqa: E731
    return Draw(call=call, tensors=tensors, attributes={"dim": axis})


@uses("split", "chunk", "unbind", "split by sizes", "one part of a split")
def parted(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3, empty=False)
    axis = c.axis(len(shape))
    n = shape[axis]
    match name:
        case "unbind":
            return Draw(call=torch.unbind, tensors=[real(c, shape)], attributes={"dim": axis})
        case "chunk":
            attributes = {"chunks": c.between(1, 4), "dim": axis}
            return Draw(call=torch.chunk, tensors=[real(c, shape)], attributes=attributes)
        case "split by sizes":
            first = c.between(0, n)
            attributes = {"split_size_or_sections": [first, n - first], "dim": axis}
        case "one part of a split":
            call = lambda x, dim: x.split(1, dim)[-1]  # noqa: E731
            return Draw(call=call, tensors=[real(c, shape)], attributes={"dim": axis})
        case _:
            attributes = {"split_size_or_sections": c.between(1, n), "dim": axis}
    return Draw(call=torch.split, tensors=[real(c, shape)], attributes=attributes)


@uses("reshape", "flatten", "permute", "transpose", "squeeze", "unsqueeze", "movedim", "view of a transpose")
def reshaped(c: Chance, name: str) -> Draw:
    shape = c.shape(2, 4)
    rank, axis = len(shape), c.axis(len(shape))
    attributes: dict[str, Any] = {}
    match name:
        case "reshape":
            function: Any = lambda x, shape: x.reshape(shape)  # noqa: E731
            attributes["shape"] = c.of(((-1,), (*shape[::-1],), (1, *shape, 1))) if 0 not in shape else (0, 5)
        case "flatten":
            function = torch.flatten
            attributes = {"start_dim": c.between(0, 1), "end_dim": -1}
        case "permute":
            function, attributes = torch.permute, {"dims": c.permutation(rank)}
        case "transpose":
            function, attributes = torch.transpose, {"dim0": axis, "dim1": c.axis(rank)}
        case "squeeze":
            shape = tuple(1 if c.one_in(2) else n for n in shape)
            function, attributes = torch.squeeze, {"dim": axis} if c.one_in(2) else {}
        case "unsqueeze":
            function, attributes = torch.unsqueeze, {"dim": axis}
        case "movedim":
            function, attributes = torch.movedim, {"source": axis, "destination": c.axis(rank)}
        case _:
            function = lambda x: (x.transpose(0, 1).contiguous().view(-1), x.mT * 2)  # noqa: E731
    return Draw(call=function, tensors=[real(c, shape)], attributes=attributes)


@uses(
    "expand", "repeat", "tile", "repeat_interleave", "broadcast_to", "meshgrid", "clone", "unfold a dimension"
)
def repeated(c: Chance, name: str) -> Draw:
    shape = c.shape(1, 3)
    wide = tuple(c.between(0, 3) if n == 1 else n for n in shape)
    count = c.between(0, 3)
    axis = c.axis(len(shape))
    times = tuple(c.between(0, 3) for _ in range(len(shape) + 1))
    call: Callable[..., Any]
    match name:
        case "expand":
            call = lambda x: x.expand(2, *wide)  # noqa: E731
        case "repeat":
            call = lambda x: x.repeat(*times)  # noqa: E731
        case "tile":
            call = lambda x: x.tile(times)  # noqa: E731
        case "repeat_interleave":
            call = lambda x: x.repeat_interleave(count, dim=axis)  # noqa: E731
        case "broadcast_to":
            call = lambda x: torch.broadcast_to(x, (3, *wide)) * 2  # noqa: E731
        case "meshgrid":
            call = lambda *x: torch.meshgrid(*x, indexing="ij")  # noqa: E731
            return Draw(call=call, tensors=[real(c, (c.size(),)) for _ in range(c.between(1, 3))])
        case "clone":
            call = lambda x: x.clone()  # noqa: E731
        case _:
            n, shape = c.between(1, 3), (*shape, c.between(3, 6))
            call = lambda x: x.unfold(-1, n, 2)  # noqa: E731
    return Draw(call=call, tensors=[real(c, shape)])

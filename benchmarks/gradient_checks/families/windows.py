"""Convolutions, pools, paddings, and changes of resolution."""

from __future__ import annotations

import math
from typing import Any

from torch.nn import functional

from benchmarks.gradient_checks.draws import Draw, apart, real, tied, uses
from benchmarks.operators.draws import Chance


def _sizes(c: Chance, rank: int) -> tuple[int, ...]:
    return tuple(c.between(3, 7) for _ in range(rank))


def _each(c: Chance, rank: int, *choices: int) -> Any:
    return c.of(choices) if c.one_in(2) else tuple(c.of(choices) for _ in range(rank))


@uses("conv1d", "conv2d", "conv3d")
def convolution(c: Chance, name: str) -> Draw:
    rank = int(name[4])
    groups = c.of((1, 1, 2, 3))
    inner, outer = groups * c.between(1, 2), groups * c.between(1, 2)
    tensors = [
        real(c, (c.between(1, 2), inner, *_sizes(c, rank))),
        real(c, (outer, inner // groups, *_each_size(c, rank))),
    ]
    if c.one_in(2):
        tensors.append(real(c, (outer,)))
    attributes = {
        "stride": _each(c, rank, 1, 2, 3), "padding": _each(c, rank, 0, 1, 2),
        "dilation": c.of((1, 1, 2)), "groups": groups,
    }  # fmt: skip
    if c.one_in(5):
        attributes |= {"stride": 1, "padding": c.of(("same", "valid"))}
    if attributes["dilation"] == 2:
        tensors[0] = real(c, (*tensors[0].shape[:2], *(n + 2 for n in tensors[0].shape[2:])))
    return Draw(call=getattr(functional, name), tensors=tensors, attributes=attributes)


def _each_size(c: Chance, rank: int) -> tuple[int, ...]:
    return tuple(c.between(1, 3) for _ in range(rank))


@uses("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def transposed(c: Chance, name: str) -> Draw:
    rank = int(name[-2])
    groups = c.of((1, 1, 2))
    inner, outer = groups * c.between(1, 2), c.between(1, 2)
    kernel = tuple(c.between(2, 3) for _ in range(rank))
    tensors = [
        real(c, (c.between(1, 2), inner, *(c.between(2, 5) for _ in range(rank)))),
        real(c, (inner, outer, *kernel)),
    ]
    if c.one_in(2):
        tensors.append(real(c, (outer * groups,)))
    stride = c.of((1, 2, 3))
    attributes = {
        "stride": stride, "padding": c.of((0, 1)), "output_padding": c.between(0, stride - 1),
        "groups": groups, "dilation": c.of((1, 1, 2)),
    }  # fmt: skip
    return Draw(call=getattr(functional, name), tensors=tensors, attributes=attributes)


@uses("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
def pool(c: Chance, name: str) -> Draw:
    rank = int(name[-2])
    shape = (c.between(1, 2), c.between(1, 3), *_sizes(c, rank))
    kernel = c.between(1, 3)
    attributes: dict[str, Any] = {
        "kernel_size": kernel, "stride": _each(c, rank, 1, 2, 3), "padding": c.between(0, kernel // 2),
        "ceil_mode": c.one_in(3),
    }  # fmt: skip
    if name.startswith("max"):
        ties = c.one_in(3)
        attributes["dilation"] = c.of((1, 1, 2 if kernel < 3 else 1))
        x = tied(c, shape) if ties else apart(c, shape)
        return Draw(call=getattr(functional, name), tensors=[x], attributes=attributes, smooth=not ties)
    attributes["count_include_pad"] = c.one_in(2)
    return Draw(call=getattr(functional, name), tensors=[real(c, shape)], attributes=attributes)


@uses(*(f"adaptive_{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)))
def adaptive(c: Chance, name: str) -> Draw:
    rank = int(name[-2])
    shape = (c.between(1, 2), c.between(1, 3), *_sizes(c, rank))
    target = tuple(c.of((1, 1, 2, 3, n)) for n in shape[2:]) if c.one_in(2) else (1,) * rank
    return Draw(call=getattr(functional, name), tensors=[apart(c, shape)], attributes={"output_size": target})


@uses("lp_pool2d")
def lp_pool(c: Chance, name: str) -> Draw:
    x = c.positive((1, 2, *_sizes(c, 2)), "float64")
    return Draw(
        call=functional.lp_pool2d, tensors=[x], attributes={"norm_type": c.of((1.0, 2.0)), "kernel_size": 2}
    )


@uses("pad with constants", "pad reflect", "pad replicate", "pad circular")
def pad(c: Chance, name: str) -> Draw:
    mode = name.split()[-1] if name != "pad with constants" else "constant"
    rank = c.between(1, 3)
    if mode == "constant":
        shape = c.shape(1, 4, empty=False)
        amounts = [c.between(-1 if n > 2 else 0, 2) for n in reversed(shape) for _ in range(2)]
        amounts = amounts[: 2 * c.between(1, len(shape))]
        attributes = {"pad": tuple(amounts), "mode": mode, "value": c.of((0.0, 1.5))}
    else:
        shape = (c.between(1, 2), c.between(1, 2), *_sizes(c, rank))
        attributes = {"pad": tuple(c.between(0, 2) for _ in range(2 * rank)), "mode": mode}
    return Draw(call=functional.pad, tensors=[real(c, shape)], attributes=attributes)


_MODES = {
    1: ("nearest", "linear", "nearest-exact", "area"),
    2: ("nearest", "bilinear", "bicubic", "nearest-exact", "area"),
    3: ("nearest", "trilinear", "area"),
}


@uses("interpolate1d", "interpolate2d", "interpolate3d")
def interpolate(c: Chance, name: str) -> Draw:
    rank = int(name[-2])
    mode = c.of(_MODES[rank])
    attributes: dict[str, Any] = {"mode": mode}
    if c.one_in(2):
        attributes["size"] = tuple(c.between(1, 9) for _ in range(rank))
    else:
        attributes["scale_factor"] = c.of((2.0, 0.5, 1.5, 3.0))
        if mode != "nearest-exact" and c.one_in(3):
            attributes["recompute_scale_factor"] = True
    if "linear" in mode or mode == "bicubic":
        attributes["align_corners"] = c.one_in(2)
    x = real(c, (c.between(1, 2), c.between(1, 2), *_sizes(c, rank)))
    return Draw(call=functional.interpolate, tensors=[x], attributes=attributes)


@uses("pixel_shuffle", "pixel_unshuffle")
def shuffle(c: Chance, name: str) -> Draw:
    n, k, h, w = (c.between(1, 3) for _ in range(4))
    shape = (n, 4 * k, h, w) if name == "pixel_shuffle" else (n, k, 2 * h, 2 * w)
    call = getattr(functional, name)
    return Draw(call=lambda x: call(x, 2), tensors=[real(c, shape)])


@uses("unfold", "fold")
def patches(c: Chance, name: str) -> Draw:
    attributes: dict[str, Any] = {
        "kernel_size": (2, 3),
        "stride": c.of((1, 2)),
        "padding": c.of((0, 1)),
        "dilation": c.of((1, 2)),
    }
    size = (c.between(5, 7), c.between(6, 8))
    if name == "unfold":
        return Draw(call=functional.unfold, tensors=[real(c, (2, 3, *size))], attributes=attributes)
    blocks = math.prod(
        (n + 2 * attributes["padding"] - attributes["dilation"] * (k - 1) - 1) // attributes["stride"] + 1
        for n, k in zip(size, (2, 3), strict=True)
    )
    return Draw(
        call=functional.fold,
        tensors=[real(c, (2, 12, blocks))],
        attributes={"output_size": size, **attributes},
    )


@uses("grid_sample")
def grid_sample(c: Chance, name: str) -> Draw:
    attributes = {
        "mode": c.of(("bilinear", "nearest", "bicubic")),
        "padding_mode": c.of(("zeros", "border", "reflection")), "align_corners": c.one_in(2),
    }  # fmt: skip
    n = c.between(1, 2)
    grid = c.within((n, c.between(1, 4), c.between(1, 4), 2), "float64", -1.3, 1.3)
    return Draw(
        call=functional.grid_sample,
        tensors=[real(c, (n, 2, *_sizes(c, 2))), grid],
        attributes=attributes,
        smooth=False,
    )

"""Convolutions, pooling, padding, resizing."""

from __future__ import annotations

import numpy as np

from benchmarks.operators.draws import Chance, Draw, draws


def _window(c: Chance, spatial: int) -> dict[str, object]:
    """Attributes that windows of every kind have."""
    kernel = [c.between(1, 3) for _ in range(spatial)]
    strides = [c.between(1, 3) for _ in range(spatial)]
    attributes: dict[str, object] = {"kernel_shape": kernel, "strides": strides}
    padding = c.of(("none", "pads", "SAME_UPPER", "SAME_LOWER", "VALID"))
    if padding == "pads":
        attributes["pads"] = [c.between(0, k - 1) for k in kernel * 2]
    elif padding != "none":
        attributes["auto_pad"] = padding
    return attributes


def _spatial(c: Chance, attributes: dict[str, object], dilations: list[int]) -> tuple[int, ...]:
    kernel = attributes["kernel_shape"]
    assert isinstance(kernel, list)
    return tuple((k - 1) * d + c.between(1, 8) for k, d in zip(kernel, dilations, strict=True))


@draws("Conv")
def convolution(c: Chance, op: str) -> Draw:
    spatial = c.of((1, 2, 2, 3))
    attributes = _window(c, spatial)
    dilations = [1 if "auto_pad" in attributes else c.of((1, 1, 2)) for _ in range(spatial)]
    group, inner, outer = c.of((1, 1, 2, 3)), c.between(1, 3), c.between(1, 3)
    dtype = c.of(("float32", "float32", "float64"))
    x = c.values((c.size(), group * inner, *_spatial(c, attributes, dilations)), dtype)
    w = c.values((group * outer, inner, *attributes["kernel_shape"]), dtype)  # pyright: ignore[reportGeneralTypeIssues]
    bias = None if c.one_in(2) else c.values((group * outer,), dtype)
    attributes |= {"group": group, "dilations": dilations}
    return Draw(op_type=op, inputs=[x, w, bias], attributes=attributes, terms=inner * 27)


@draws("ConvTranspose")
def transposed_convolution(c: Chance, op: str) -> Draw:
    spatial = c.of((1, 2, 2, 3))
    kernel = [c.between(1, 3) for _ in range(spatial)]
    strides = [c.between(1, 3) for _ in range(spatial)]
    group, inner, outer = c.of((1, 1, 2)), c.between(1, 3), c.between(1, 3)
    dtype = c.of(("float32", "float64"))
    x = c.values((c.size(empty=False), group * inner, *(c.between(2, 6) for _ in kernel)), dtype)
    w = c.values((group * inner, outer, *kernel), dtype)
    bias = None if c.one_in(2) else c.values((group * outer,), dtype)
    attributes = {
        "kernel_shape": kernel,
        "strides": strides,
        "pads": [c.between(0, (k - 1) // 2) for k in kernel * 2],
        "group": group,
        "output_padding": [c.between(0, s - 1) for s in strides],
    }
    return Draw(op_type=op, inputs=[x, w, bias], attributes=attributes, terms=inner * 27)


@draws("MaxPool", "AveragePool")
def pooling(c: Chance, op: str) -> Draw:
    spatial = c.of((1, 2, 2, 3))
    attributes = _window(c, spatial)
    dilations = [1 if "auto_pad" in attributes else c.of((1, 1, 2)) for _ in range(spatial)]
    dtype = c.of(("float32", "float32", "float64"))
    # implementations differ about a last window that starts in the padding: see the unit tests
    if "auto_pad" not in attributes and "pads" not in attributes:
        attributes["ceil_mode"] = c.between(0, 1)
    kernel, strides = attributes["kernel_shape"], attributes["strides"]
    if attributes.get("auto_pad") in ("SAME_UPPER", "SAME_LOWER"):
        # a step over more than the window asks for less than no padding: onnxruntime refuses it, the
        # reference crops, and daceml pads by none, as onnxruntime's convolutions do
        attributes["strides"] = [min(pair) for pair in zip(kernel, strides, strict=True)]  # pyright: ignore[reportArgumentType]
    attributes["dilations"] = dilations
    outputs = 1
    if op == "AveragePool":
        attributes["count_include_pad"] = c.between(0, 1)
    elif c.one_in(3):
        outputs = 2
    x = c.values((c.size(), c.size(), *_spatial(c, attributes, dilations)), dtype)
    return Draw(op_type=op, inputs=[x], attributes=attributes, outputs=outputs, terms=27)


@draws("GlobalAveragePool", "GlobalMaxPool")
def global_pooling(c: Chance, op: str) -> Draw:
    shape = c.shape(3, 5, empty=False)
    return Draw(op_type=op, inputs=[c.values(shape, "float32")], terms=100)


@draws("LpPool")
def lp_pooling(c: Chance, op: str) -> Draw:
    spatial = c.of((1, 2))
    attributes = _window(c, spatial) | {"p": c.of((1, 2, 3))}
    x = c.positive(
        (c.size(empty=False), c.size(empty=False), *_spatial(c, attributes, [1] * spatial)), "float32"
    )
    return Draw(op_type=op, inputs=[x], attributes=attributes, terms=27)


@draws("Pad")
def pad(c: Chance, op: str) -> Draw:
    shape = c.shape(1, 4, empty=False)
    mode = c.of(("constant", "constant", "reflect", "edge", "wrap"))
    dtype = c.of(("float32", "float64", "int64"))
    axes = c.axes(len(shape))
    low = -1 if mode == "constant" and c.one_in(4) else 0
    sizes = [shape[a] for a in axes]
    pads = [
        c.between(low if n > 2 else 0, min(n - 1, 3) if mode in ("reflect", "wrap") else 3) for n in sizes * 2
    ]
    value = np.asarray(c.of((0, 2)), dtype) if mode == "constant" and c.one_in(2) else None
    inputs = [c.values(shape, dtype), np.asarray(pads, np.int64), value, np.asarray(axes, np.int64)]
    return Draw(
        op_type=op, inputs=inputs, attributes={"mode": mode}, constants=c.constant(1, 2, 3), exact=True
    )


@draws("Resize")
def resize(c: Chance, op: str) -> Draw:
    mode = c.of(("nearest", "linear"))
    spatial = c.of((1, 2, 2))
    shape = (c.size(empty=False), c.size(empty=False), *(c.between(2, 7) for _ in range(spatial)))
    transform = c.of(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"))
    attributes = {"mode": mode, "coordinate_transformation_mode": transform}
    if mode == "nearest":
        attributes["nearest_mode"] = c.of(("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"))
    sizes = np.asarray([*shape[:2], *(c.between(1, 9) for _ in range(spatial))], np.int64)
    return Draw(
        op_type=op, inputs=[c.values(shape, "float32"), None, None, sizes], attributes=attributes,
        constants=frozenset({3}),
    )  # fmt: skip

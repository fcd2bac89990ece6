"""Contractions as products of matrices, and how their tiles fill a device.

Sources: NVIDIA, "Matrix Multiplication Background User's Guide" (tiles, waves, quantization); Lee et al.,
NeuSight (ASPLOS '25), whose unit of prediction is the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.devices.roofline import achieved_flops_per_s
from daceml.devices.specification import Device
from daceml.operations.database.records import Attribute, Operation

Array = NDArray[np.float64]

# Rows and columns of results that one block makes, as libraries have them
TILES = (
    *((32, 32), (64, 32), (32, 64), (64, 64), (128, 32), (32, 128), (128, 64), (64, 128), (128, 128)),
    *((64, 256), (256, 64), (128, 256), (256, 128)),
)


@dataclass(frozen=True, kw_only=True)
class Products:
    """[operations] each: `batch` products of [m, k] by [k, n].

    Attributes:
        positions: of a convolution's kernel, 1 elsewhere. Fast algorithms (Winograd's, Fourier transforms)
            multiply less, by a factor that never reaches it.
    """

    batch: Array
    m: Array
    n: Array
    k: Array
    positions: Array


def products(operations: Sequence[Operation]) -> Products | None:
    """The products that these operations of one operator are; None where they are none."""
    read = _READERS.get(operations[0].operator) if operations else None
    if read is None:
        return None
    rows = [read(operation) for operation in operations]
    if any(row is None for row in rows):
        return None
    batch, m, n, k, positions = np.array([row for row in rows if row], np.float64).T
    return Products(batch=batch, m=m, n=n, k=k, positions=positions)


def tile_seconds(work: Products, device: Device, arithmetic: str) -> tuple[Array, Array]:
    """How long each size of tile would take, in whole waves over the device's multiprocessors.

    Returns:
        [operations, tiles] seconds, and [operations, tiles] blocks.
    Raises:
        DeviceError: its multiprocessors or its rate of arithmetic are not known.
    """
    multiprocessors = device.need("multiprocessors", why="a wave fills all of them")
    rate = achieved_flops_per_s(device, arithmetic).per_s / multiprocessors
    edges = np.array(TILES, np.float64)
    blocks = np.ceil(work.m[:, None] / edges[:, 0]) * np.ceil(work.n[:, None] / edges[:, 1])
    blocks = np.maximum(blocks * work.batch[:, None], 1)
    waves = np.ceil(blocks / multiprocessors)
    return waves * 2 * edges.prod(axis=1) * np.maximum(work.k, 1)[:, None] / rate, blocks


def _matrices(operation: Operation) -> tuple[float, ...] | None:
    """The last two operands: a bias may come before them."""
    if len(operation.operands) < 2:
        return None
    first, second = (one.shape for one in operation.operands[-2:])
    if len(first) < 2 or len(second) < 2:
        return None
    try:
        batch = np.broadcast_shapes(first[:-2], second[:-2])
    except ValueError:  # these multiply nothing
        return None
    return float(np.prod(batch)), first[-2], second[-1], first[-1], 1.0


def _matmul(operation: Operation) -> tuple[float, ...] | None:
    first, second = (one.shape for one in operation.operands[:2])
    if len(second) == 2 and len(first) > 2:  # rows of all batches are those of one product
        return 1.0, float(np.prod(first[:-1])), second[1], first[-1], 1.0
    return _matrices(operation)


def _linear(operation: Operation) -> tuple[float, ...] | None:
    first, weight = (one.shape for one in operation.operands[:2])
    return 1.0, float(np.prod(first[:-1])), weight[0], first[-1], 1.0


def _convolution(operation: Operation) -> tuple[float, ...] | None:
    if operation.direction != "forward" or len(operation.operands) < 2:
        return None
    image, weight = (one.shape for one in operation.operands[:2])
    if operation.attributes.get("transposed"):
        return None
    given, dims = operation.attributes, len(weight) - 2
    groups = given.get("groups", 1)
    if not isinstance(groups, int) or isinstance(given.get("padding", 0), str):
        return None
    usual = {"stride": 1, "padding": 0, "dilation": 1}
    steps = (_each(given.get(name, default), dims) for name, default in usual.items())
    pixels = 1
    for size, kernel, stride, padding, dilation in zip(image[-dims:], weight[2:], *steps, strict=True):
        pixels *= max((size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1, 0)
    positions = float(np.prod(weight[2:]))
    return groups, image[0] * pixels, weight[0] / groups, weight[1] * positions, positions


def _each(value: Attribute, dims: int) -> tuple[int, ...]:
    values = value if isinstance(value, tuple) else (value,)
    numbers = tuple(int(v) for v in values)
    return numbers * dims if len(numbers) == 1 else numbers


_READERS: dict[str, Callable[[Operation], tuple[float, ...] | None]] = {
    "aten::mm": _matrices,
    "aten::bmm": _matrices,
    "aten::addmm": _matrices,
    "aten::baddbmm": _matrices,
    "aten::matmul": _matmul,
    "aten::linear": _linear,
    "aten::conv1d": _convolution,
    "aten::conv2d": _convolution,
    "aten::conv3d": _convolution,
    "aten::convolution": _convolution,
}

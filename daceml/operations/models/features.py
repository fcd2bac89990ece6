"""What a model sees of an operation on a device: sizes, work, tiles, other devices' times; in logarithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from daceml.devices.roofline import Work, achieved_flops_per_s, lower_bound, memory_bytes_per_s
from daceml.devices.specification import Device
from daceml.errors import EstimationError
from daceml.operations.database.records import Operation
from daceml.operations.models.dimensions import Dimensions, dimensions
from daceml.operations.models.principal_component import PrincipalComponent, logarithms
from daceml.operations.models.products import products, tile_seconds
from daceml.operations.work.operator_work import work_of

Array = NDArray[np.float64]

# What libraries choose kernels by: whether sizes are multiples of these
_MULTIPLES = (4, 8, 32, 64, 128)
_CACHE_TIMES = 4.0


@dataclass(frozen=True, kw_only=True)
class Described:
    """Operations of one mode on one device.

    Attributes:
        names: of the columns.
        values: [operations, names]; NaN is not known.
        base: [operations] logarithm of the seconds that analysis says: a roofline, of products by tiles.
        least: [operations] logarithm of the seconds that the device's peaks need.
        dimensions: the numbers that they were made of.
    """

    names: tuple[str, ...]
    values: Array
    base: Array
    least: Array
    dimensions: Dimensions

    def and_on(self, references: Mapping[str, Array]) -> Described:
        """With what the same operations took on other devices.

        Args:
            references: name -> [operations] logarithm of measured over analysed seconds there; NaN is
                not known.
        """
        names = (*self.names, *(f"on {name}" for name in references))
        values = np.hstack([self.values, *(column[:, None] for column in references.values())])
        return replace(self, names=names, values=values)


def described(
    operations: Sequence[Operation],
    device: Device,
    component: PrincipalComponent | None = None,
    *,
    floor_s: float,
) -> Described:
    """The features of operations.

    Args:
        component: their principal component, which is one more column.
        floor_s: what the smallest operation takes as these were timed; work comes on top of it.
    Raises:
        EstimationError: their modes differ, or nobody knows what they compute and move.
        DeviceError: rates of the device are not known.
    """
    numbers = dimensions(operations)
    flops, moved, arithmetic = _work(operations)
    rate = achieved_flops_per_s(device, arithmetic).per_s if flops.any() else 1.0
    memory = memory_bytes_per_s(device).per_s
    columns: dict[str, Array] = {}
    logs = logarithms(numbers.values)
    columns.update({name: logs[:, i] for i, name in enumerate(numbers.names)})
    columns |= {
        "flops": np.log(flops + 1),
        "bytes": np.log(moved + 1),
        "flops per byte": np.log((flops + 1) / (moved + 1)),
    }
    if component is not None:
        columns["principal component"] = component.logarithm(numbers)
    if device.l2_bytes is not None:
        columns["share of cache"] = np.minimum(moved / device.l2_bytes.value, _CACHE_TIMES)
    compute, fewest = flops / rate, flops
    contraction = products(operations)
    if contraction is not None:
        fewest = flops / np.maximum(contraction.positions, 1)
        seconds, blocks = tile_seconds(contraction, device, arithmetic)
        columns |= _product_columns(contraction.m, contraction.n, contraction.k, seconds, blocks)
        compute = seconds.min(axis=1)
    base = np.log(np.maximum(compute, moved / memory) + floor_s)
    columns["base"] = base
    return Described(
        names=tuple(columns),
        values=np.stack(list(columns.values()), axis=1),
        base=base,
        least=_least(fewest, moved, arithmetic, device),
        dimensions=numbers,
    )


def _work(operations: Sequence[Operation]) -> tuple[Array, Array, str]:
    found = [work_of(operation) for operation in operations]
    if any(one is None for one in found):
        raise EstimationError(
            f"{operations[0].operator} cannot be estimated",
            why="daceml has no formula of its operations and bytes",
            fix="add it to the table of daceml/operations/work/operator_work.py",
        )
    known = [one for one in found if one is not None]
    flops = np.array([one.flops for one in known], np.float64)
    moved = np.array([one.bytes_moved for one in known], np.float64)
    return flops, moved, known[0].arithmetic


def _least(flops: Array, moved: Array, arithmetic: str, device: Device) -> Array:
    """By peaks alone, as `lower_bound`; what may lie in the cache is not limited by memory."""
    bounds = [
        lower_bound(
            Work(flops=f, bytes_moved=b, arithmetic=arithmetic, working_set_bytes=b), device
        ).duration_us
        for f, b in zip(flops.tolist(), moved.tolist(), strict=True)
    ]
    return np.log(np.maximum(np.array(bounds) * 1e-6, 1e-12))


def _product_columns(m: Array, n: Array, k: Array, seconds: Array, blocks: Array) -> dict[str, Array]:
    found = {"m": np.log(m + 1), "n": np.log(n + 1), "k": np.log(k + 1)}
    found["best tile"] = np.log(seconds.min(axis=1))
    for tile in range(seconds.shape[1]):
        found[f"tile {tile}"] = np.log(seconds[:, tile])
        found[f"blocks {tile}"] = np.log(blocks[:, tile])
    for multiple in _MULTIPLES:
        for name, size in (("m", m), ("n", n), ("k", k)):
            found[f"{name} lacks of {multiple}"] = (-size) % multiple / multiple
    return found

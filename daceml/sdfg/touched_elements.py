"""Elements of an array that the iterations of loops touch, counted once: exact where a stride skips some."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sympy
from dace.sdfg import nodes

from daceml.sdfg.sizes import Size, product, size

_MOST = 1 << 18  # values of an index that are listed


@dataclass(frozen=True, kw_only=True)
class Region:
    """Elements that one access touches in all iterations.

    Attributes:
        key: equal for accesses of the same elements.
    """

    key: tuple[str, ...]
    elements: Size


def touched(subset: Any, entries: Iterable[nodes.MapEntry]) -> Region | None:
    """The elements of an array that an access inside some maps touches.

    Args:
        subset: of the array, in terms of the parameters of the maps.
        entries: the maps around the access.
    Returns:
        None where an index is not affine, or where two dimensions depend on the same parameter.
    """
    ranges = {
        str(name): (bounds, extent)
        for entry in entries
        for name, bounds, extent in zip(
            entry.map.params, entry.map.range, entry.map.range.size(), strict=True
        )
    }
    varying = {name for name, (bounds, _) in ranges.items() if _symbols(bounds) & ranges.keys()}
    seen: set[str] = set()
    counts: list[Size] = []
    keys: list[str] = []
    for low, high, step in subset.ndrange():
        names = sorted(_symbols((low, high)) & ranges.keys())
        if seen.intersection(names) or varying.intersection(names):
            return None
        seen.update(names)
        count = _count(low, high, step, {name: ranges[name] for name in names})
        if count is None:
            return None
        counts.append(count)
        described = [str(ranges[name][0]) for name in names]
        index = "" if len(names) == 1 and str(low) == names[0] else str(low)
        for place, name in enumerate(names):
            index = index.replace(name, f"#{place}")
        keys.append(f"{index} {size(high - low + 1)} {step} {described}")
    return Region(key=tuple(keys), elements=product(counts))


def _count(low: Any, high: Any, step: Any, ranges: Mapping[str, tuple[Any, Any]]) -> Size | None:
    """Different values of an index; None where it is not affine in parameters of fixed ranges."""
    block = 1 if low == high else size((high - low) // step + 1)
    if not ranges:
        return block
    if not isinstance(block, int):
        return None
    if len(ranges) == 1 and block == 1 and str(low) in ranges:
        ((_, extent),) = ranges.values()
        return None if _varies(extent) else size(extent)
    coefficients = _affine(low, tuple(ranges))
    if coefficients is None:
        return None
    if len(ranges) == 1 and block == 1:
        ((_, extent),) = ranges.values()
        return None if _varies(extent) else size(extent)
    steps: list[tuple[int, int]] = [(int(step), block)] if block > 1 else []
    for coefficient, ((_, _, by), extent) in zip(coefficients, ranges.values(), strict=True):
        length, by = size(extent), size(by)
        if not isinstance(length, int) or not isinstance(by, int):
            return None
        steps.append((coefficient * by, length))
    return _different(tuple(sorted(steps)))


def _symbols(expressions: Iterable[Any]) -> set[str]:
    return {str(symbol) for one in expressions for symbol in getattr(one, "free_symbols", ())}


def _varies(extent: Any) -> bool:
    """Whether a loop has another number of iterations each time, as the last of several blocks."""
    return bool(getattr(extent, "atoms", lambda *_: ())(sympy.Min, sympy.Max))


def _affine(index: Any, names: tuple[str, ...]) -> tuple[int, ...] | None:
    """Whole factors of parameters in an index, none of which is 0."""
    if index.atoms(sympy.Function, sympy.Mod, sympy.Min, sympy.Max):
        return None
    found: list[int] = []
    for name in names:
        coefficient = sum(index.diff(s) for s in index.free_symbols if str(s) == name)
        if not isinstance(coefficient, sympy.Integer) or coefficient == 0:
            return None
        found.append(int(coefficient))
    return tuple(found)


@lru_cache(maxsize=4096)
def _different(steps: tuple[tuple[int, int], ...]) -> int | None:
    """Different sums of multiples: of each step, from 0 to so many times less one."""
    values = {0}
    for step, times in steps:
        if len(values) * times > _MOST:
            return None
        values = {value + step * k for value in values for k in range(times)}
    return len(values)

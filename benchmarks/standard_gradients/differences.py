"""Gradients against central differences, along elements and along random directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks.standard_gradients.program import Differentiated

# (step, how far a derivative may be off, of its size): the second where something inside is float32
STEPS = ((1e-5, 1e-6), (1e-3, 1e-3))
# For operators that take no float64
SHORT_STEPS = ((1e-2, 3e-3), (3e-3, 3e-3))
_ELEMENTS, _DIRECTIONS = 6, 3
# Where a kink is nearer than a step, the inputs are moved
_MOVES = 3

Numbers = Sequence[np.ndarray]


def first_difference(compiled: Differentiated, inputs: Numbers) -> str | None:
    """Where a gradient is not the derivative, in words: empty for nowhere, None where no place was smooth.

    Inputs are moved a little first: the standard's are often whole numbers, where many functions have a kink.
    """
    random = np.random.default_rng(0)
    smooth, problem = set[int](), ""
    for _ in range(_MOVES):
        moved = [_moved(value, random) for value in inputs]
        results, _ = compiled(moved, compiled.zeros)
        usable = [
            np.isfinite(results[p]).reshape(z.shape)
            for p, z in zip(compiled.sources, compiled.zeros, strict=True)
        ]
        cotangents = [
            np.where(mask, random.normal(size=z.shape), 0).astype(z.dtype)
            for mask, z in zip(usable, compiled.zeros, strict=True)
        ]
        _, gradients = compiled(moved, cotangents)

        def value(at: Numbers, cotangents: Numbers = cotangents, usable: Numbers = usable) -> float:
            results, _ = compiled(at, cotangents)
            made = zip(compiled.sources, cotangents, usable, strict=True)
            parts = (results[p].reshape(mask.shape)[mask].astype(float) * c[mask] for p, c, mask in made)
            return float(sum(np.sum(part) for part in parts))

        for place, gradient in gradients.items():
            if place in smooth:
                continue
            verdicts = [
                _agrees(value, moved, place, direction, float(np.sum(gradient * direction)))
                for direction in _directions(moved[place], random)
            ]
            known = [verdict for verdict in verdicts if verdict is not None]
            problem = next(filter(None, known), "")
            if problem:
                return f"input {place}: {problem}"
            if len(known) == len(verdicts):
                smooth.add(place)
        if len(smooth) == len(gradients):
            return ""
    return None


def _moved(value: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if value.dtype.kind != "f":
        return value
    moved = value * (1 + 1e-2 * random.uniform(size=value.shape)) + 1e-3 * random.normal(size=value.shape)
    return moved.astype(value.dtype)


def _directions(value: np.ndarray, random: np.random.Generator) -> Iterator[np.ndarray]:
    for element in random.permutation(value.size)[:_ELEMENTS]:
        single = np.zeros(value.size)
        single[element] = 1
        yield single.reshape(value.shape)
    for _ in range(_DIRECTIONS if value.size > 1 else 0):
        direction = random.normal(size=value.shape)
        yield direction / np.linalg.norm(direction)


def _agrees(
    value: Callable[[Numbers], float], at: Numbers, place: int, direction: np.ndarray, slope: float
) -> str | None:
    """Empty where the slope is that of a difference, None where differences do not agree with each other."""

    def difference(step: float) -> float:
        there = at[place]
        moved = [(there + s * step * direction).astype(there.dtype) for s in (1, -1)]
        ends = ([*at[:place], end, *at[place + 1 :]] for end in moved)
        up, down = map(value, ends)
        return (up - down) / (2 * step)

    smooth, seen = False, 0.0
    for step, allowed in STEPS if at[place].dtype == np.float64 else SHORT_STEPS:
        wide, narrow = difference(step), difference(step / 4)
        scale = max(abs(slope), abs(narrow), 1.0)
        if abs(narrow - slope) <= allowed * scale:
            return ""
        if abs(wide - narrow) <= allowed * scale:
            smooth, seen = True, narrow
    return f"{slope:.6g} where differences say {seen:.6g}" if smooth else None

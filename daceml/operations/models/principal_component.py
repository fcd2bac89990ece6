"""The one product of an operation's numbers that its duration follows.

Source: Tianshu's principal component: each parameter counts linearly, inversely, by a power, or not at all;
what selects another computation is a mode, and modes are apart before this begins (`dimensions.mode`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.errors import EstimationError
from daceml.operations.models.dimensions import Dimensions

# More of a tensor's size is never less work; an attribute, as a stride, may be in the denominator.
_OF_A_SIZE = (0, 1, 2)
_OF_AN_ATTRIBUTE = (-2, -1, 0, 1, 2)
# Correlations of ranks are taken over so many operations at most
_SAMPLE = 400
# Candidates that are held at a time; of more, parameters are chosen one after the other
_AT_ONCE = 20_000
_REFITTED = 5
_FOLDS = 5
# What a further parameter must bring, so that noise does not name one
_WORTH = 1e-3


@dataclass(frozen=True, kw_only=True)
class PrincipalComponent:
    """A product of powers.

    Attributes:
        exponents: name of the parameter -> power; those that do not count are left out.
        correlation: of ranks, with the durations it was found from.
        error: mean relative, of scaled powers of it, held out five-fold.
    """

    exponents: Mapping[str, int]
    correlation: float
    error: float

    def logarithm(self, dimensions: Dimensions) -> NDArray[np.float64]:
        """[operations] its natural logarithm."""
        powers = np.array([self.exponents.get(name, 0) for name in dimensions.names], np.float64)
        return logarithms(dimensions.values) @ powers

    def text(self) -> str:
        """As in "0.0 x 0.1^2 / stride.0"."""

        def factor(name: str, power: int) -> str:
            return name if power == 1 else f"{name}^{power}"

        above = [factor(name, power) for name, power in self.exponents.items() if power > 0]
        below = [factor(name, -power) for name, power in self.exponents.items() if power < 0]
        return " / ".join([" x ".join(above) or "1", *below])


def logarithms(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of sizes and attributes: a half stands for 0, which is as far from 1 as 1 is from 2."""
    return np.log(np.maximum(np.abs(values), 0.5))


def principal_component(
    dimensions: Dimensions, seconds: Sequence[float] | NDArray[np.float64]
) -> PrincipalComponent:
    """Find it among all products: by correlation of ranks, and of the best few by what a fit leaves.

    Args:
        seconds: measured, one for each operation, above 0.
    Raises:
        EstimationError: there are fewer than ten operations, or nothing varies among them.
    """
    target = np.log(np.asarray(seconds, np.float64))
    logs = logarithms(dimensions.values)
    columns = _different(logs, dimensions)
    if len(target) < 2 * _FOLDS or not columns:
        raise EstimationError(
            "no principal component can be found",
            why=f"there are {len(target)} measurements, in which {len(columns)} numbers vary",
            fix=f"measure at least {2 * _FOLDS} operations of different sizes",
        )
    chosen = np.random.default_rng(0).permutation(len(target))[:_SAMPLE]
    powers = [_OF_A_SIZE if dimensions.sizes[c] else _OF_AN_ATTRIBUTE for c in columns]
    candidates = _candidates(logs[chosen][:, columns], target[chosen], powers)
    fitted = [(held_out_error(logs[:, columns] @ one, target), tuple(one)) for one in candidates]
    # a product and its square fit alike
    error, best = min(fitted, key=lambda one: (round(one[0], 6), np.abs(one[1]).sum()))
    component = logs[:, columns] @ np.array(best)
    exponents = {dimensions.names[c]: int(p) for c, p in zip(columns, best, strict=True) if p}
    return PrincipalComponent(
        exponents=exponents, correlation=float(_correlations(component[None], target)[0]), error=error
    )


def held_out_error(component: NDArray[np.float64], target: NDArray[np.float64]) -> float:
    """Mean relative error of a power of a product, fitted without the fifth that it is tried on."""
    fold = np.arange(len(target)) % _FOLDS
    errors = np.empty(len(target))
    for one in range(_FOLDS):
        known, tried = fold != one, fold == one
        matrix = np.stack([component[known], np.ones(int(known.sum()))], axis=1)
        solution = np.linalg.lstsq(matrix, target[known], rcond=None)[0]
        errors[tried] = np.expm1(component[tried] * solution[0] + solution[1] - target[tried])
    return float(np.abs(errors).mean())


def _different(logs: NDArray[np.float64], dimensions: Dimensions) -> list[int]:
    """Columns that vary, each once: a size that two operands share is one parameter."""
    found: list[int] = []
    for column in np.flatnonzero(dimensions.varying()):
        if not any(np.array_equal(logs[:, column], logs[:, other]) for other in found):
            found.append(int(column))
    return found


def _candidates(
    logs: NDArray[np.float64], target: NDArray[np.float64], powers: Sequence[tuple[int, ...]]
) -> list[NDArray[np.float64]]:
    """The best few: of all where they are few, else parameters join the product one by one."""
    if np.prod([float(len(p)) for p in powers]) <= _AT_ONCE:
        return _best(np.array(list(itertools.product(*powers)), np.float64), logs, target)
    found = [np.zeros(len(powers))]
    score = 0.0
    while True:
        longer = [_with(one, at, power) for one in found for at, p in enumerate(powers) for power in p]
        best = _best(np.unique(np.array(longer), axis=0), logs, target)
        reached = float(_correlations((logs @ best[0])[None], target)[0])
        if reached < score + _WORTH:
            return found
        found, score = best, reached


def _with(exponents: NDArray[np.float64], at: int, power: int) -> NDArray[np.float64]:
    changed = exponents.copy()
    changed[at] = power
    return changed


def _best(
    candidates: NDArray[np.float64], logs: NDArray[np.float64], target: NDArray[np.float64]
) -> list[NDArray[np.float64]]:
    correlation = _correlations(candidates @ logs.T, target)
    # of equally good ones, the one with the smallest powers
    order = np.lexsort((np.abs(candidates).sum(axis=1), -np.round(correlation, 6)))
    return list(candidates[order[:_REFITTED]])


def _correlations(components: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.float64]:
    """[candidates] Spearman's; 0 for what does not vary. Ties come in any order: they are rare."""
    ranks = np.argsort(np.argsort(components, axis=1, kind="stable"), axis=1).astype(np.float64)
    wanted = np.argsort(np.argsort(target, kind="stable")).astype(np.float64)
    ranks -= ranks.mean(axis=1, keepdims=True)
    wanted -= wanted.mean()
    scale = np.sqrt((ranks**2).sum(axis=1) * (wanted**2).sum())
    varies = np.ptp(components, axis=1) > 0
    return np.where(varies, (ranks @ wanted) / np.maximum(scale, 1e-300), 0.0)

"""From measurements of one kind of operation on one device to a model of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from daceml.devices.specification import Device
from daceml.errors import EstimationError
from daceml.operations.database.records import Mode, Operation
from daceml.operations.models.boosted_trees import BoostedTrees
from daceml.operations.models.bounds import limits
from daceml.operations.models.features import Described, described
from daceml.operations.models.fitting.perceptrons import PerceptronSettings, fit_perceptron
from daceml.operations.models.fitting.trees import TreeSettings, fit_trees
from daceml.operations.models.operator_model import OperatorModel, kind_of
from daceml.operations.models.perceptron import Perceptron
from daceml.operations.models.principal_component import principal_component

Array = NDArray[np.float64]

FEWEST = 40
"""Measurements below which nothing is learned."""

# Of the rows, to choose among architectures and to find how wide intervals are
_HELD_BACK = 0.15
_COVERED = 0.9
# Errors below this are measurement's
_LEAST_ERROR = 1e-3
_OF_ERRORS = TreeSettings(trees=60, leaves=8, fewest=20, rate=0.08)
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
# In the order in which they are tried while the budget lasts
_TREES = (
    TreeSettings(),
    TreeSettings(trees=800, leaves=31, fewest=5, rate=0.05),
    TreeSettings(trees=300, leaves=15, fewest=20, rate=0.08),
)
_PERCEPTRONS = (
    PerceptronSettings(width=128, passes=60),
    PerceptronSettings(),
    PerceptronSettings(width=256, layers=4, passes=200),
)


# First where time is limited
_FEW_TREES = TreeSettings(trees=60, leaves=15, rate=0.15)
# Of the time, for trees of all rows, and those of errors
_FOR_THE_REST = 1 / 3


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One architecture, and its mean relative error on rows that were held back."""

    architecture: str
    error: float
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A model and how it came about.

    Attributes:
        error: mean relative, on rows that were held back; the model itself is of all rows.
        tried: every architecture, in order.
    """

    model: OperatorModel
    error: float
    tried: tuple[Tried, ...]


@dataclass
class _Search:
    """What is best among what was tried until now.

    Attributes:
        until: of `time.monotonic`, when trees end with those that there are, and nothing else is begun; None
            is no limit, and the first architecture alone.
    """

    seen: Described
    residual: Array
    known: NDArray[np.int64]
    held: NDArray[np.int64]
    until: float | None
    tried: list[Tried] = field(default_factory=list[Tried])
    trees: tuple[TreeSettings, Array, BoostedTrees] | None = None
    perceptron: tuple[PerceptronSettings, Array, Perceptron] | None = None

    def error(self, predicted: Array) -> float:
        return float(np.abs(np.expm1(predicted - self.residual[self.held])).mean())

    def run(self) -> None:
        """Trees first: they take seconds. Trees end with the time that is left, perceptrons are given up."""
        if self.until is None:
            self._try_trees(_TREES[0], inf)
            return
        for settings in (_FEW_TREES, *_TREES):
            if self.trees is None or monotonic() < self.until:
                self._try_trees(settings, self.until)
        for settings in _PERCEPTRONS:
            begun = monotonic()
            given = self.seen.values[self.known], self.residual[self.known]
            network = fit_perceptron(*given, settings, until=self.until)
            if network is None:
                break
            predicted = network.predict(self.seen.values[self.held])
            self._note(str(settings), self.error(predicted), begun)
            if self.perceptron is None or self.error(predicted) < self.error(self.perceptron[1]):
                self.perceptron = (settings, predicted, network)

    def _try_trees(self, settings: TreeSettings, until: float) -> None:
        begun = monotonic()
        given = self.seen.values[self.known], self.residual[self.known]
        fitted = fit_trees(*given, settings, until=until)
        predicted = fitted.predict(self.seen.values[self.held])
        self._note(f"{settings}, {len(fitted.roots)} fitted", self.error(predicted), begun)
        if self.trees is None or self.error(predicted) < self.error(self.trees[1]):
            self.trees = (settings, predicted, fitted)

    def _note(self, architecture: str, error: float, begun: float) -> None:
        self.tried.append(Tried(architecture=architecture, error=error, seconds=monotonic() - begun))

    def mixed(self, share: float) -> Array:
        assert self.trees is not None
        other = self.trees[1] if self.perceptron is None else self.perceptron[1]
        return (1 - share) * self.trees[1] + share * other


def fit(
    operations: Sequence[Operation],
    seconds: Sequence[float] | Array,
    device: Device,
    *,
    floor_s: float,
    references: Mapping[str, Array] | None = None,
    timing: Mode = "eager",
    budget_s: float = 30.0,
) -> Fitted:
    """Fit a model to measurements.

    Args:
        operations: of one mode.
        seconds: measured on the device, above 0.
        floor_s: what the smallest operation takes as these were timed.
        references: what the same operations took on other devices, as `Described.and_on` takes it.
        timing: how they were measured.
        budget_s: for all; results differ with it. Where it passes, models have the trees that there are by
            then, twenty at least. 0 is no limit, and the first architecture.
    Raises:
        EstimationError: there are fewer than `FEWEST`, or a duration is not above 0.
        EnvironmentProblem: scikit-learn is not there.
    """
    begun = monotonic()
    measured, given = np.asarray(seconds, np.float64), dict(references or {})
    if len(measured) < FEWEST or not (measured > 0).all():
        raise EstimationError(
            "no model can be fitted to these measurements",
            why=f"there are {len(measured)}, and a model needs {FEWEST}"
            if len(measured) < FEWEST
            else "a duration is not above 0",
            fix="measure more operations of this kind: daceml measure",
        )
    order = np.random.default_rng(0).permutation(len(measured))
    cut = max(int(len(order) * _HELD_BACK), 10)
    held, known = order[:cut], order[cut:]
    plain = described(operations, device, floor_s=floor_s)
    numbers = plain.dimensions
    component = principal_component(numbers, measured) if numbers.varying().any() else None
    seen = described(operations, device, component, floor_s=floor_s).and_on(given)
    residual = np.log(measured) - seen.base
    until = begun + (1 - _FOR_THE_REST) * budget_s if budget_s else None
    end = begun + budget_s if budget_s else inf
    search = _Search(seen=seen, residual=residual, known=known, held=held, until=until)
    search.run()
    assert search.trees is not None
    shares = _SHARES if search.perceptron is not None else (0.0,)
    share = min(shares, key=lambda one: search.error(search.mixed(one)))
    errors = np.maximum(np.abs(search.mixed(share) - residual[held]), _LEAST_ERROR)
    trees = _of_all(seen.values, residual, search.trees, end) if share < 1 else None
    spread = fit_trees(seen.values[held], np.log(errors), _OF_ERRORS, until=end)
    usual = np.exp(_out_of_fold(seen.values[held], np.log(errors), until=end))
    perceptron = search.perceptron[2] if search.perceptron is not None and share > 0 else None
    model = OperatorModel(
        device=device.name,
        kind=kind_of(operations[0]),
        timing=timing,
        component=component,
        floor_s=floor_s,
        references=tuple(given),
        names=seen.names,
        trees=trees,
        perceptron=perceptron,
        share=share,
        spread=spread,
        width=_width(errors / usual),
        limits=limits(numbers.values, numbers.sizes, measured, seen.base),
    )
    return Fitted(model=model, error=search.error(search.mixed(share)), tried=tuple(search.tried))


def _of_all(
    features: Array, target: Array, chosen: tuple[TreeSettings, Array, BoostedTrees], until: float
) -> BoostedTrees:
    """The chosen trees, fitted to all rows; those of the rows that were not held back if time is short."""
    settings, _, fitted = chosen
    if monotonic() > until:
        return fitted
    again = fit_trees(features, target, replace(settings, trees=len(fitted.roots)), until=until)
    return again if len(again.roots) == len(fitted.roots) else fitted


def _out_of_fold(features: Array, target: Array, *, until: float) -> Array:
    """What the model of errors says of rows that it has not seen."""
    fold, found = np.arange(len(target)) % 5, np.empty(len(target))
    for one in range(5):
        fitted = fit_trees(features[fold != one], target[fold != one], _OF_ERRORS, until=until)
        found[fold == one] = fitted.predict(features[fold == one])
    return found


def _width(ratios: Array) -> float:
    """The quantile that covers, as conformal prediction has it: one more row than there are."""
    rank = int(np.ceil((len(ratios) + 1) * _COVERED))
    return float(np.sort(ratios)[min(rank, len(ratios)) - 1])

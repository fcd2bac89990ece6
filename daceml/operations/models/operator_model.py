"""What was learned of one operator on one device, bounded by analysis and by what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daceml.devices.specification import Device
from daceml.errors import EstimationError
from daceml.operations.database.records import Mode, Operation
from daceml.operations.estimate import Estimate
from daceml.operations.models.boosted_trees import BoostedTrees
from daceml.operations.models.bounds import Limits
from daceml.operations.models.dimensions import Dimensions, mode
from daceml.operations.models.features import Described, described
from daceml.operations.models.perceptron import Perceptron
from daceml.operations.models.principal_component import PrincipalComponent

Array = NDArray[np.float64]

# Limits of what lies far away: no exponential of more than this
_WIDEST = 5.0


@dataclass(frozen=True, kw_only=True)
class OperatorModel:
    """A residual over analysis, in logarithms of seconds.

    Attributes:
        device: its name. kind: text of the one `mode` of operations. timing: how rows were measured.
        component: what their durations follow.
        floor_s: of analysis, here and on reference devices.
        references: names of devices whose durations of the same operations are features.
        names: of the features.
        trees, perceptron: either may be None; `share` is the perceptron's in their mean.
        spread: of the features, logarithm of the usual error.
        width: times the usual error, nine in ten are within.
        limits: by what was measured.
    """

    device: str
    kind: str
    timing: Mode
    component: PrincipalComponent | None
    floor_s: float
    references: tuple[str, ...]
    names: tuple[str, ...]
    trees: BoostedTrees | None
    perceptron: Perceptron | None
    share: float
    spread: BoostedTrees
    width: float
    limits: Limits

    def estimates(
        self,
        operations: Sequence[Operation],
        device: Device,
        references: Mapping[str, Array] | None = None,
    ) -> list[Estimate]:
        """How long operations of this model's kind take.

        Args:
            device: the figures of the model's device.
            references: as `Described.and_on` takes them, of the model's references; those left out are not
                known.
        Raises:
            EstimationError: operations of another kind.
            DeviceError: figures of the device are not known that were when the model was fitted.
        """
        kinds = {kind_of(operation) for operation in operations}
        if kinds != {self.kind}:
            raise EstimationError(
                "these operations are not what this model was fitted to",
                why=f"it knows {self.kind}",
                fix="take the model of their kind, or fit one",
            )
        known = dict(references or {})
        unknown = np.full(len(operations), np.nan)
        seen = described(operations, device, self.component, floor_s=self.floor_s).and_on(
            {name: known.get(name, unknown) for name in self.references}
        )
        if seen.names != self.names:
            raise EstimationError(
                f"the model of {self.device} does not fit the figures of {device.name}",
                why="features differ: " + ", ".join(sorted({*seen.names} ^ {*self.names})),
                fix="fit it again with these figures",
            )
        logs, sigma = self.logarithms(seen)
        outside, distance = self._outside(seen.dimensions)
        half = np.minimum(self.width * sigma * (1 + np.maximum(distance - 1, 0)), _WIDEST)
        us = 1e6 * np.exp(logs)
        low = np.maximum(us * np.exp(-half), np.minimum(1e6 * np.exp(seen.least), us))
        high = us * np.exp(half)
        return [
            Estimate(
                duration_us=float(us[i]),
                low_us=float(low[i]),
                high_us=float(high[i]),
                basis="learned",
                outside=outside[i],
            )
            for i in range(len(us))
        ]

    def logarithms(self, seen: Described) -> tuple[Array, Array]:
        """[operations] logarithm of the seconds within all limits, and its usual error."""
        residual = np.zeros(len(seen.base))
        if self.trees is not None:
            residual += (1 - self.share) * self.trees.predict(seen.values)
        if self.perceptron is not None:
            residual += self.share * self.perceptron.predict(seen.values)
        logs = self.limits.clipped(seen.base + residual, seen.dimensions.values, seen.base, seen.least)
        return logs, np.exp(self.spread.predict(seen.values))

    def _outside(self, numbers: Dimensions) -> tuple[list[str], Array]:
        """[operations] why each is outside of what was measured, and its distance in reaches."""
        distance, _ = self.limits.distance(numbers.values)
        logs = np.log(np.maximum(np.abs(numbers.values), 0.5))
        low, high = self.limits.numbers.min(axis=0), self.limits.numbers.max(axis=0)
        told: list[str] = []
        for row, far in zip(logs, distance / self.limits.reach, strict=True):
            beyond = np.flatnonzero((row < low - 1e-9) | (row > high + 1e-9))
            if beyond.size:
                at = int(beyond[0])
                told.append(
                    f"size {numbers.names[at]} is {np.exp(row[at]):.0f}; measured were "
                    f"{np.exp(low[at]):.0f} to {np.exp(high[at]):.0f}"
                )
            else:
                told.append(f"the nearest measured one is {far:.1f} times as far as usual" if far > 1 else "")
        return told, distance / self.limits.reach


def kind_of(operation: Operation) -> str:
    """The mode of an operation as one line of text."""
    return repr(mode(operation))

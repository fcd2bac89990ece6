"""What every optimisation of a what-if question has in common."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from daceml.errors import WhatIfError
from daceml.simulation.engine.events import SchedulingPolicy
from daceml.simulation.graph import TaskGraph

Side = Literal["fast", "likely", "slow"]

LARGEST = 1e15  # of any figure: what is beyond is a slip, and would only overflow
_OTHER: dict[Side, Side] = {"fast": "slow", "slow": "fast", "likely": "likely"}


def other_side(side: Side) -> Side:
    """Best for worst and worst for best: where a figure helps what it usually hinders."""
    return _OTHER[side]


@dataclass(frozen=True)
class Estimate:
    """A figure that nobody has measured on this run: what is likely, and where it is at best and at worst.

    Attributes:
        fast: what makes the run fastest, such as a high speed-up or a low overhead.
        slow: what makes it slowest.
    """

    likely: float
    fast: float
    slow: float

    def __post_init__(self) -> None:
        if not all(0 <= value <= LARGEST for value in (self.likely, self.fast, self.slow)):
            raise WhatIfError(
                f"{self.likely:g}, at best {self.fast:g} and at worst {self.slow:g}, is no estimate",
                fix=f"give figures from 0 to {LARGEST:g}",
            )
        if not min(self.fast, self.slow) <= self.likely <= max(self.fast, self.slow):
            raise WhatIfError(
                f"{self.likely} does not lie between {self.fast} and {self.slow}",
                fix="give the likely figure, then the one at best and the one at worst",
            )

    @classmethod
    def known(cls, value: float) -> Estimate:
        """A figure that is certain."""
        return cls(value, value, value)

    def at(self, side: Side) -> Estimate:
        """The figure at best, likely or at worst, as if it were certain."""
        return Estimate.known(getattr(self, side))


@dataclass(frozen=True, kw_only=True)
class Optimization(ABC):
    """A change of a run, as a change of its task graph.

    A subclass is a frozen dataclass whose fields are its options; uncertain ones are `Estimate`s.
    `option` is its name on the command line ("fused-adam"), `title` what tables call it, `source` what its
    figures come from.
    """

    option: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    # Names of fields that divide: 0 means nothing there.
    above_zero: ClassVar[tuple[str, ...]] = ()
    # Optimisations of one family are alternatives to each other; each is one to itself.
    family: ClassVar[str] = ""
    # Whether its rule asks how long the run takes: it is applied to what the others have left of it.
    sees_others: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            figures = (value.likely, value.fast, value.slow) if isinstance(value, Estimate) else (value,)
            for figure in figures:
                if isinstance(figure, int | float) and not 0 <= figure <= LARGEST:
                    raise WhatIfError(
                        f"{self.option}: {field.name} cannot be {figure:g}", fix=f"give 0 to {LARGEST:g}"
                    )
                if field.name in self.above_zero and figure == 0:
                    raise WhatIfError(f"{self.option}: {field.name} cannot be 0", fix="give more than 0")

    @property
    def number_format(self) -> str:
        """In which it lets the device compute; "" where it changes no format."""
        return ""

    @property
    def label(self) -> str:
        """Its title, with the number format."""
        return f"{self.title} ({self.number_format})" if self.number_format else self.title

    def check(self, graph: TaskGraph) -> str | None:
        """Why it cannot be applied to this graph; None where it can."""
        return None

    @property
    def devices(self) -> float:
        """How many times as many devices share the samples."""
        return 1.0

    @property
    def samples(self) -> float:
        """How many times as many samples a step takes, on all devices together."""
        return self.devices

    @property
    def may_cost(self) -> bool:
        """Whether its figures allow a step to get slower; where they do not, no answer may say so."""
        return True

    def moved_us(self, graph: TaskGraph) -> float:
        """What all steps together take at least, for work that the optimization moves off the run's lanes."""
        return 0.0

    @abstractmethod
    def apply(self, graph: TaskGraph) -> TaskGraph:
        """The graph of the run with the optimisation; `check` has found nothing against it."""

    @property
    def policy(self) -> SchedulingPolicy | None:
        """With what its graph is to be simulated, where lanes that are not ordered choose; None for any."""
        return None

    def assumptions(self, graph: TaskGraph) -> tuple[str, ...]:
        """What the prediction takes for granted, a sentence each."""
        return ()

    def at(self, side: Side) -> Self:
        """With every uncertain figure at best, likely or at worst."""
        certain = {
            field.name: value.at(side)
            for field in dataclasses.fields(self)
            if isinstance(value := getattr(self, field.name), Estimate)
        }
        return dataclasses.replace(self, **certain)


def applied(optimization: Optimization, graph: TaskGraph) -> TaskGraph:
    """The graph of the run with an optimisation.

    Raises:
        WhatIfError: it cannot be applied; the message says why.
    """
    reason = optimization.check(graph)
    if reason is not None:
        raise WhatIfError(
            f"{optimization.title} cannot be applied to this run",
            where=graph.source,
            why=reason,
            fix="leave it out, or record a run that has what it changes",
        )
    return optimization.apply(graph)

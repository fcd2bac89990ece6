"""Rounds of interleaved slices: their order, which of them count, and what follows from those."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from daceml.interval import Median, as_json, median_interval

FOREIGN_LIMIT = 0.10  # of the machine: above it a round is dropped
MINIMUM_ROUNDS = 6  # fewer clean rounds are no measurement: no 95 % interval of a median exists below 6


@dataclass(frozen=True, kw_only=True)
class Slice:
    """One variant's part of a round."""

    duration_us: float
    foreign: float


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Rounds of slices by variant name; the clean ones count.

    Attributes:
        names: the variants, in the order they were given.
        rounds: every round that was run, in time order.
        foreign_limit: the share of the machine above which a slice spoils its round.
        missing: variants that could not be built or run -> why.
    """

    names: tuple[str, ...]
    rounds: tuple[Mapping[str, Slice], ...]
    foreign_limit: float = FOREIGN_LIMIT
    missing: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def clean(self) -> tuple[Mapping[str, Slice], ...]:
        return tuple(
            entry
            for entry in self.rounds
            if max(part.foreign for part in entry.values()) <= self.foreign_limit
        )

    @property
    def measured(self) -> bool:
        """Whether enough rounds were clean."""
        return len(self.clean) >= MINIMUM_ROUNDS

    def duration_us(self, name: str) -> Median:
        return median_interval([entry[name].duration_us for entry in self._kept])

    def ratio(self, name: str, over: str) -> Median:
        """How many times longer `name` takes than `over`, round by round."""
        return median_interval([entry[name].duration_us / entry[over].duration_us for entry in self._kept])

    def difference_us(self, name: str, minus: str) -> Median:
        """How much longer `name` takes than `minus`, round by round."""
        return median_interval([entry[name].duration_us - entry[minus].duration_us for entry in self._kept])

    def row(self, baseline: str) -> dict[str, Any]:
        """The measurement as it is written to a result file."""
        return {
            "rounds": len(self.rounds),
            "rounds_kept": len(self._kept),
            "measured": self.measured,
            "variants": {
                name: {
                    "duration_us": as_json(self.duration_us(name)),
                    f"ratio_over_{baseline}": as_json(self.ratio(name, baseline)),
                }
                for name in self.names
            },
        }

    def to_data(self) -> dict[str, Any]:
        """Plain values for json.dumps, of which `from_data` makes the same measurement."""
        return {
            "names": list(self.names),
            "rounds": [{name: asdict(part) for name, part in entry.items()} for entry in self.rounds],
            "foreign_limit": self.foreign_limit,
            "missing": dict(self.missing),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Measurement:
        """What `to_data` wrote."""
        return cls(
            names=tuple(data["names"]),
            rounds=tuple({name: Slice(**part) for name, part in row.items()} for row in data["rounds"]),
            foreign_limit=data["foreign_limit"],
            missing=data["missing"],
        )

    @property
    def _kept(self) -> tuple[Mapping[str, Slice], ...]:
        """The clean rounds; where they are too few, the cleaner half of all, to have something to look at."""
        if self.measured:
            return self.clean
        by_noise = sorted(self.rounds, key=lambda entry: max(part.foreign for part in entry.values()))
        return tuple(by_noise[: max(1, (len(by_noise) + 1) // 2)])


def order_of_round(names: Sequence[str], number: int) -> tuple[str, ...]:
    """The order of round `number`: turned by one every second round, and reversed in every odd one."""
    turn = (number // 2) % len(names)
    turned = (*names[turn:], *names[:turn])
    return turned[::-1] if number % 2 else turned

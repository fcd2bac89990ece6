"""What an exploration has found, as records that are stored and shown."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from daceml.errors import ExplorationError
from daceml.notebook import html_of
from daceml.plain_files import read_plain
from daceml.tuning.variant import Variant

Objective = Literal["time", "memory", "cost"]
Outcome = Literal[
    "standard recipe",
    "measured",
    "predicted",
    "same program",
    "refused",
    "results differ",
]
_FORM = 1

_BUSY = 1.5  # times as long as in its best hour: a machine does something else, too


def disturbance(slowness: float, foreign_share: float) -> str:
    """What says that others ran beside a measurement; "" where nothing does.

    Args:
        slowness: how many times as long as in its best hour the machine took; 1 where that is not known.
        foreign_share: of the machine, that others used; 0 where rounds were left out until none did.
    """
    found: list[str] = []
    if slowness >= _BUSY:
        found.append(f"this machine took {slowness:.1f} times as long as in its best hour")
    if foreign_share > 0:
        found.append(f"other programs used {foreign_share:.0%} of this machine")
    return ", and ".join(found)


@dataclass(frozen=True, kw_only=True)
class Times:
    """What a variant takes beside the standard one, in rounds in which both ran.

    Attributes:
        ratio: the median of a variant's time over the standard variant's of the same round; ratio_low and
            ratio_high hold it with 99 %.
        ms, low_ms, high_ms: the same in milliseconds, where the standard variant takes what it took at first:
            machines slow down and recover between two comparisons.
    """

    ms: float
    low_ms: float
    high_ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    rounds: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """One variant.

    Attributes:
        predicted_ms: before it was measured; low_ms, high_ms hold nine of ten variants.
        measured_share: of the predicted time, how much are steps that other programs were measured with.
        memory_bytes: at the peak; moved_bytes: read and written; kernels: None where nobody knows.
        usd_per_million: what a million steps cost where the device has a price.
        why: a sentence where the outcome needs one.
    """

    variant: Variant
    outcome: Outcome
    predicted_ms: float | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    measured_share: float | None = None
    measured: Times | None = None
    memory_bytes: int | None = None
    moved_bytes: int | None = None
    kernels: int | None = None
    usd_per_million: float | None = None
    why: str = ""

    @property
    def error(self) -> float | None:
        """By how much the prediction was off, as a share of what was measured."""
        if self.measured is None or self.predicted_ms is None:
            return None
        return self.predicted_ms / self.measured.ms - 1

    @property
    def disagrees(self) -> bool:
        """Whether the measured interval lies apart from the predicted one, as both are shown."""
        if self.measured is None or self.low_ms is None or self.high_ms is None:
            return False
        low_ms, high_ms, seen_low_ms, seen_high_ms = (
            float(f"{ms:.3g}")
            for ms in (self.low_ms, self.high_ms, self.measured.low_ms, self.measured.high_ms)
        )
        return seen_high_ms < low_ms or seen_low_ms > high_ms

    @property
    def best_known_ms(self) -> float | None:
        """Measured, else predicted."""
        return self.predicted_ms if self.measured is None else self.measured.ms

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the title and the changes of the variant."""
        told = asdict(self)
        one = self.variant
        return {
            "title": one.title, "changes": list(one.changes), "promises": list(one.promises),
            "device": one.device or "this machine", "precision": one.precision or "as it is", **told,
        }  # fmt: skip

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Row:
        """What `to_json` gave."""
        fields: dict[str, Any] = {name: told[name] for name in cls.__dataclass_fields__}
        measured = fields["measured"]
        fields["variant"] = Variant.from_json(fields["variant"])
        fields["measured"] = None if measured is None else Times(**measured)
        return cls(**fields)


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """All variants of a model for one kind of call.

    Attributes:
        model: name of its class.
        inputs: types and sizes of the call, as text.
        machine: that measured.
        rows: the standard variant first, the others by what is known of them, the best first.
        winner: place of the row that is best by the objective.
        complete: False where the budget ended before the rest was known to be worse.
        compiled: variants that were compiled and measured; predicted: those that were lowered.
        ended: what ended the search before that; "" where nothing did.
        slowness: how many times as long as in its best hour the machine took, if that is known.
        foreign_share: of the machine, the most that others used beside one of the measurements, where that
            could not be avoided; else 0.
        eager: a call as PyTorch runs it, beside the standard variant; None where that was not measured.
    """

    model: str
    inputs: str
    training: bool
    objective: Objective
    machine: str
    seed: int
    budget_s: float
    spent_s: float
    complete: bool
    rows: tuple[Row, ...]
    winner: int
    compiled: int
    predicted: int
    ended: str = ""
    slowness: float = 1.0
    foreign_share: float = 0.0
    eager: Times | None = None

    @property
    def disturbance(self) -> str:
        """What says that others ran beside the measurements; "" where nothing does."""
        return disturbance(self.slowness, self.foreign_share)

    @property
    def best(self) -> Row:
        """The row of the winner."""
        return self.rows[self.winner]

    @property
    def standard(self) -> Row:
        """The row of the standard variant."""
        return self.rows[0]

    @property
    def mean_error(self) -> float | None:
        """Of predictions of variants that were measured, as a share; the standard variant's is none."""
        errors = [abs(row.error) for row in self.rows[1:] if row.error is not None]
        return sum(errors) / len(errors) if errors else None

    def _repr_html_(self) -> str:
        return html_of("exploration", self)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        told = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "rows"}
        told["eager"] = None if self.eager is None else asdict(self.eager)
        return {"form": _FORM, **told, "variants": [row.to_json() for row in self.rows]}

    def save(self, path: str | Path) -> None:
        """Write a file that `load` and `daceml gui` read."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Exploration:
        """Read a file that `save` wrote.

        Raises:
            ExplorationError: it is none.
        """
        try:
            told: dict[str, Any] = json.loads(read_plain(Path(path)))
            form = told.pop("form")
            rows = tuple(map(Row.from_json, told.pop("variants")))
            eager = told.pop("eager", None)
            found = cls(rows=rows, eager=None if eager is None else Times(**eager), **told)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ExplorationError(
                f"{path} is no exploration", why=str(error), fix="give what `daceml explore --output` wrote"
            ) from error
        if form != _FORM:
            raise ExplorationError(
                f"{path} is of form {form}", why=f"this daceml reads form {_FORM}", fix="explore once more"
            )
        return found

"""What a search has found, as records that are stored and shown."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

Outcome = Literal[
    "standard recipe",
    "chosen",
    "part of what was chosen",
    "not faster",
    "not confirmed",
    "predicted worse",
    "identical program",
    "results differ",
    "refused",
    "budget used up",
]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Times of one candidate beside the standard recipe's.

    Attributes:
        ms: median of a call.
        ratio: median of the times over the standard recipe's of the same round.
        low, high: the interval that holds the true median ratio.
        rounds: that were used.
    """

    ms: float
    ratio: float = 1.0
    low: float = 1.0
    high: float = 1.0
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One candidate.

    Attributes:
        choices: names of what differs from the standard recipe.
        outcome: what became of it.
        why: a sentence where the outcome needs one.
        predicted_ms: None where it was not lowered.
        measured: None where it was not run.
    """

    choices: tuple[str, ...]
    outcome: Outcome
    why: str = ""
    predicted_ms: float | None = None
    measured: Measured | None = None

    @property
    def name(self) -> str:
        """As `explain` shows it."""
        return " + ".join(self.choices) or "standard recipe"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a search has chosen for one kind of call on one machine.

    Attributes:
        choices: names of what differs from the standard recipe; empty where that is the fastest.
        trials: every candidate, the standard recipe first.
        spent_s, budget_s: of the search.
        complete: False where the budget was used up before every candidate had its turn.
        machine: what it was measured on.
        sizes: of the inputs.
        key: of the chosen program.
    """

    choices: tuple[str, ...]
    trials: tuple[Trial, ...]
    spent_s: float
    budget_s: float
    complete: bool
    machine: str = ""
    sizes: str = ""
    key: str = ""

    @property
    def title(self) -> str:
        """What was chosen."""
        return " + ".join(self.choices) or "the standard recipe"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def save(self, folder: Path) -> None:
        """Write `decision.json`."""
        (folder / "decision.json").write_text(json.dumps(self.to_json(), indent=1))

    @classmethod
    def load(cls, folder: Path) -> Decision:
        """Read `decision.json`."""
        record: dict[str, Any] = json.loads((folder / "decision.json").read_text())
        record["choices"] = tuple(record["choices"])
        record["trials"] = tuple(map(_trial, record["trials"]))
        return cls(**record)


def _trial(row: dict[str, Any]) -> Trial:
    row["choices"] = tuple(row["choices"])
    row["measured"] = None if row["measured"] is None else Measured(**row["measured"])
    return Trial(**row)

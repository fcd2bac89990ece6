"""What each level of transformations did to a program, as `explain` shows it.

The records lie in a file of their own beside the manifest: only `explain` reads them, and a large network has
thousands.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_FILE = "levels.json"
LEVELS = ("coarse", "operators", "local", "layout", "hardware")


@dataclass(frozen=True, kw_only=True)
class RefusalRecord:
    """One thing that was left as it was.

    Attributes:
        transformation: what would have changed it.
        subject: array or operator.
        reason: a sentence.
        where: module path and the user's line, where they are known.
        size_bytes: of the data concerned, at the example inputs.
    """

    transformation: str
    subject: str
    reason: str
    where: str = ""
    size_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class LevelRecord:
    """One level.

    Attributes:
        level: one of `LEVELS`.
        passes: those that ran, in order -> what each changed -> how often; nothing where it found nothing.
        refused: what was not done.
        figures: amounts that only this level knows, by name: `steps` and `unique_bytes` before it,
            `separate_bytes` and `workspace_bytes` of the layout.
    """

    level: str
    passes: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    refused: tuple[RefusalRecord, ...] = ()
    figures: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def applied(self) -> dict[str, int]:
        """What was changed -> how often, over all passes."""
        return applied_by(self.passes)


def applied_by(passes: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """What passes changed -> how often."""
    applied: Counter[str] = Counter()
    for changes in passes.values():
        applied.update(changes)
    return dict(applied)


def save_levels(levels: tuple[LevelRecord, ...], folder: Path) -> None:
    """Write `levels.json`."""
    (folder / _FILE).write_text(json.dumps([asdict(level) for level in levels]))


def load_levels(folder: Path) -> tuple[LevelRecord, ...]:
    """Read `levels.json`; nothing where a program has none."""
    file = folder / _FILE
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.is_file() else []
    for row in rows:
        row["refused"] = tuple(RefusalRecord(**refusal) for refusal in row["refused"])
    return tuple(LevelRecord(**row) for row in rows)

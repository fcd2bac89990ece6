"""A folder with GraphNet's `samples`: which graphs there are, how large they are, and a draw of them."""

from __future__ import annotations

import math
import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Larger graphs are left out: a small machine holds weights, their float64 copy and their gradients.
MOST_WEIGHTS = 60_000_000
MOST_TEXT_BYTES = 260_000
_FILES = ("model.py", "weight_meta.py", "input_meta.py")
_SHAPE = re.compile(r"^\s+shape = \[([^\]]*)\]", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Graphs of one seed.

    Attributes:
        names: paths below `samples`; those with the shortest texts come first.
        large: how many were drawn and left out for their size.
    """

    names: tuple[str, ...]
    large: int


def default_folder() -> Path | None:
    """`$DACEML_SUITES/GraphNet`, if there is one."""
    suites = os.environ.get("DACEML_SUITES")
    folder = Path(suites) / "GraphNet" if suites else None
    return folder if folder is not None and (folder / "samples").is_dir() else None


def draw(folder: Path, *, count: int, seed: int, words: tuple[str, ...] = ()) -> Draw:
    """Draw graphs that are small enough, in the place of each larger one the next.

    Args:
        words: only graphs with one of them in their name.
    """
    found = [name for name in graphs(folder) if not words or any(word in name for word in words)]
    random.Random(seed).shuffle(found)
    names: list[str] = []
    large = 0
    for name in found:
        if len(names) == count:
            break
        if _is_large(folder / "samples" / name):
            large += 1
        else:
            names.append(name)
    names.sort(key=lambda name: (folder / "samples" / name / "model.py").stat().st_size)
    return Draw(names=tuple(names), large=large)


def graphs(folder: Path) -> list[str]:
    """Every graph whose files are all there, by its path below `samples`."""
    samples = folder / "samples"
    return sorted(
        str(file.parent.relative_to(samples))
        for file in samples.rglob("model.py")
        if all((file.parent / other).is_file() for other in _FILES)
    )


def _is_large(graph: Path) -> bool:
    if (graph / "model.py").stat().st_size > MOST_TEXT_BYTES:
        return True
    return sum(_sizes((graph / "weight_meta.py").read_text(encoding="utf-8"))) > MOST_WEIGHTS


def _sizes(text: str) -> Iterator[int]:
    for shape in _SHAPE.findall(text):
        yield math.prod(int(n) for n in shape.split(",") if n.strip())

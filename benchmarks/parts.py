"""A benchmark of several parts, each with its rows and bars, over a folder of public data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmarks import command
from benchmarks.bars import Bar

Seen = tuple[list[dict[str, Any]], list[Bar]]


class Part(Protocol):
    """What measures one part."""

    def __call__(self, folder: Path, *, quick: bool) -> Seen:
        """Rows and bars.

        Args:
            folder: what $DACEML_DATA names.
            quick: whether a first look is enough.
        """
        ...


def run_parts(name: str, description: str, parts: Mapping[str, Part], arguments: Sequence[str] | None) -> int:
    """Measure the parts that the command line names, or all in their order; print each bar as it is known."""
    parser = command.parser(description)
    parser.add_argument("folder", type=Path, help="the data sets: measurements and traces")
    parser.add_argument(
        "--part", action="append", choices=tuple(parts), help="only this part; may be repeated (all)"
    )
    options = parser.parse_args(arguments)
    folder: Path = options.folder
    if not (folder / "measurements").is_dir() or not (folder / "traces").is_dir():
        parser.error(f"{folder} has no folders 'measurements' and 'traces' of public data sets")
    rows: list[dict[str, Any]] = []
    bars: list[Bar] = []
    for part in options.part or parts:
        seen, made = parts[part](folder, quick=options.quick)
        rows += [{"part": part, **row} for row in seen]
        bars += made
        for bar in made:
            print(bar.line(), flush=True)
    return command.finish(name, options, rows, bars)

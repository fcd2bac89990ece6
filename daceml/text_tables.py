"""Plain text for reports: tables without color, and sentences, that fit a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from rich.cells import cell_len, chop_cells

from daceml.errors import printable

WIDTH = 80
_GAP = "  "
_NARROWEST = 12  # columns of words are not made narrower than this

_wide: ContextVar[bool] = ContextVar("daceml_wide_tables", default=False)


@contextmanager
def wide_tables() -> Generator[None]:
    """Show tables in the block with all columns, and nothing shortened."""
    token = _wide.set(True)
    try:
        yield
    finally:
        _wide.reset(token)


@dataclass(frozen=True)
class TextTable:
    """A table whose cells are lines of text; `render` fits it to the terminal.

    Attributes:
        headers: of all columns.
        words: positions of columns that hold words, aligned left; the others hold figures, aligned right.
        paths: positions of columns that are shortened in the middle, such as module paths.
        details: positions of columns that are shown by `--wide` alone.
        rows: cells of each row.
    """

    headers: tuple[str, ...]
    words: frozenset[int]
    paths: frozenset[int]
    details: frozenset[int]
    rows: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    def add_row(self, *cells: str) -> None:
        """Append a row; missing cells are empty."""
        self.rows.append((*cells, *[""] * (len(self.headers) - len(cells))))

    def lines(self) -> list[str]:
        """Return the header, a rule, and the rows."""
        wide = _wide.get()
        shown = [column for column in range(len(self.headers)) if wide or column not in self.details]
        grid = [[printable(row[column]) for column in shown] for row in (self.headers, *self.rows)]
        widths = [max(cell_len(cell) for cell in column) for column in zip(*grid, strict=True)]
        if not wide:
            widths = _fitted(widths, [place for place, column in enumerate(shown) if column in self.words])
        lines = [
            _GAP.join(
                _cell(cell, width, words=column in self.words, path=column in self.paths)
                for cell, width, column in zip(row, widths, shown, strict=True)
            ).rstrip()
            for row in grid
        ]
        return [lines[0], "─" * (sum(widths) + len(_GAP) * (len(widths) - 1)), *lines[1:]]


Part = str | TextTable


def table(
    *headers: str,
    left: int = 1,
    words: Collection[str] = (),
    paths: Collection[str] = (),
    details: Collection[str] = (),
) -> TextTable:
    """A table whose first `left` columns hold words and the others figures.

    Args:
        words: headers of further columns that hold words.
        paths: headers of columns that are shortened in the middle.
        details: headers of columns that are shown by `--wide` alone.
    """
    named = {header: column for column, header in enumerate(headers)}
    return TextTable(
        headers=headers,
        words=frozenset([*range(left), *(named[header] for header in words)]),
        paths=frozenset(named[header] for header in paths),
        details=frozenset(named[header] for header in details),
    )


def render(*parts: Part) -> str:
    """Tables and sentences below each other; no color, no blanks at the ends of lines."""
    lines: list[str] = []
    for part in parts:
        lines += part.lines() if isinstance(part, TextTable) else wrapped(part)
    return "\n".join(lines)


def wrapped(text: str, *, indent: int = 0, hanging: int = 2) -> list[str]:
    """The lines of a text, each broken between words where it is longer than the terminal.

    Args:
        indent: blanks before each line.
        hanging: further blanks before the parts of a line that was broken.
    """
    lines: list[str] = []
    for line in printable(text).split("\n"):
        first = " " * (indent + len(line) - len(line.lstrip()))
        lines += textwrap.wrap(
            line.strip(), WIDTH, initial_indent=first, subsequent_indent=first + " " * hanging,
            break_long_words=False, break_on_hyphens=False,
        ) or [""]  # fmt: skip
    return lines


def shortened(text: str, width: int, *, middle: bool = False) -> str:
    """At most `width` columns of a text, with an ellipsis at its end or in its middle."""
    if cell_len(text) <= width:
        return text
    if not middle:
        return chop_cells(text, width - 1)[0].rstrip() + "…"
    tail = width // 2
    head = chop_cells(text, width - 1 - tail)[0]
    return head + "…" + chop_cells(text[::-1], tail)[0][::-1]


def _fitted(widths: Sequence[int], words: Sequence[int]) -> list[int]:
    """Widths that fit, taken from the widest columns of words first."""
    fitted = list(widths)
    for _ in range(sum(fitted) + len(_GAP) * (len(fitted) - 1) - WIDTH):
        widest = max(words, key=lambda place: fitted[place], default=None)
        if widest is None or fitted[widest] <= _NARROWEST:
            break
        fitted[widest] -= 1
    return fitted


def _cell(text: str, width: int, *, words: bool, path: bool) -> str:
    shown = shortened(text, width, middle=path)
    blanks = " " * (width - cell_len(shown))
    return shown + blanks if words else blanks + shown


def busy(said: str, again: str) -> str:
    """A warning that other processes disturbed a measurement.

    Args:
        said: what disturbed it, as `Exploration.disturbance` has it.
        again: what to repeat, as an imperative.
    """
    return f"{said[0].upper()}{said[1:]} meanwhile: times are unreliable; {again} when the machine is idle"


def in_millions(count: float) -> str:
    """Bytes as MB (10^6), flops as Mflop: as many digits as can be told apart at a glance."""
    millions = count / 1e6
    if millions >= 100:
        return f"{millions:,.0f}"
    if millions >= 1 or millions == 0:
        return f"{millions:.2f}" if millions else "0"
    return f"{millions:.3f}" if millions >= 0.0005 else "<0.001"

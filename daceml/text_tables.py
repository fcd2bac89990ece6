"""Plain text for reports: tables without colour that fit a terminal of 110 columns."""

from __future__ import annotations

from io import StringIO

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from daceml.errors import printable

WIDTH = 110


def table(*headers: str, left: int = 1) -> Table:
    """A table whose first `left` columns hold words and the others figures."""
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for index, header in enumerate(headers):
        words = index < left
        result.add_column(header, justify="left" if words else "right", overflow="fold" if words else "crop")
    return result


def cell(text: str) -> Text:
    """Text that rich takes as it stands: shapes hold brackets, which it would read as styles."""
    return Text(text)


def render(*parts: RenderableType) -> str:
    """Tables and lines below each other; no colour, no blanks at the ends of lines."""
    stream = StringIO()
    console = Console(file=stream, width=WIDTH, no_color=True, force_terminal=False, highlight=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in printable(stream.getvalue()).rstrip("\n").split("\n"))


def busy(said: str, again: str) -> str:
    """That others ran beside what was measured, as a sentence.

    Args:
        said: of them, as `Exploration.disturbance` has it; again: what to do when they are gone.
    """
    return f"{said[0].upper()}{said[1:]} meanwhile: none of this says much; {again} when the machine is idle"


def in_millions(count: float) -> str:
    """Bytes as MB (10^6), flops as Mflop: as many digits as can be told apart at a glance."""
    millions = count / 1e6
    if millions >= 100:
        return f"{millions:,.0f}"
    if millions >= 1 or millions == 0:
        return f"{millions:.2f}" if millions else "0"
    return f"{millions:.3f}" if millions >= 0.0005 else "<0.001"

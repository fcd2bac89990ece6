"""Around the long part of a command: progress on stderr, and stdout kept for the result."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from daceml.runtime.progress import Progress, observed_by
from daceml.runtime.progress_lines import progress_lines


@contextmanager
def working(*, quiet: bool, imports_torch: bool = False) -> Generator[None]:
    """Show the progress of the block on stderr; what the block prints goes to stderr, too.

    A terminal has one line that is rewritten, anything else a line every few seconds. A model may print
    while it is loaded or traced, and stdout is for the result alone.

    Args:
        imports_torch: the block imports torch unless the process has it; that takes longer than a second, and
            other threads wait for it, so the first line is printed at once.
    """
    stderr = sys.stderr  # the block may redirect it for a while
    console = Console(file=stderr)
    with redirect_stdout(stderr):
        if quiet:
            yield
            return
        if not console.is_terminal:
            at_once = imports_torch and "torch" not in sys.modules
            with progress_lines(partial(print, file=stderr, flush=True), at_once=at_once):
                yield
            return
        bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[parts]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
            redirect_stdout=False,
        )
        with bars, observed_by(_Shown(bars)):
            yield


class _Shown:
    """One line: the stage that runs, and how many of its parts are done."""

    def __init__(self, bars: Bars) -> None:
        self.bars = bars
        self.stage = ""
        self.task = bars.add_task("starting", total=None, parts="")

    def __call__(self, progress: Progress) -> None:
        if progress.stage != self.stage:
            self.bars.remove_task(self.task)
            self.stage = progress.stage
            self.task = self.bars.add_task(progress.title, total=None, parts="")
        if progress.total:
            parts = f"{progress.done} of {progress.total}"
            self.bars.update(self.task, total=progress.total, completed=progress.done, parts=parts)

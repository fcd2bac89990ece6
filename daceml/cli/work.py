"""Around the long part of a command: progress on the terminal, and stdout kept for the result."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager, redirect_stdout

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from daceml.runtime.progress import Progress, observed_by

# Names of stages as a reader understands them; others are shown as they are.
_TITLES = {
    "load": "loading the model",
    "export": "exporting",
    "key": "looking into the cache",
    "search": "searching for a recipe",
    "import": "loading the compiler",
    "onnx": "translating to ONNX",
    "sdfg": "building the SDFG",
    "lower": "lowering operators",
    "transform": "transforming",
    "plan": "planning memory",
    "code": "generating code",
    "kernels": "compiling kernels",
    "bind": "loading the program",
    "compare": "comparing",
    "intermediate values": "comparing intermediate values",
}


@contextmanager
def working(*, quiet: bool) -> Generator[None]:
    """Show the progress of the block on stderr if that is a terminal; what it prints goes to stderr, too.

    A model may print while it is loaded or traced, and stdout is for the result alone.
    """
    console = Console(stderr=True)
    with redirect_stdout(sys.stderr):
        if quiet or not console.is_terminal:
            yield
            return
        bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[parts]}"),
            TimeElapsedColumn(),
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
        self.task: TaskID | None = None

    def __call__(self, progress: Progress) -> None:
        if progress.stage != self.stage or self.task is None:
            if self.task is not None:
                self.bars.remove_task(self.task)
            title = _TITLES.get(progress.stage, progress.stage)
            self.stage, self.task = progress.stage, self.bars.add_task(title, total=None, parts="")
        if progress.total:
            parts = f"{progress.done} of {progress.total}"
            self.bars.update(self.task, total=progress.total, completed=progress.done, parts=parts)

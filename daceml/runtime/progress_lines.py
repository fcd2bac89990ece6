"""Lines that say what a long step does and how far it is, from a thread of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event, Thread

from daceml.runtime.progress import Progress, observed_by

FIRST_S = 0.5  # a step that ends before prints nothing
EVERY_S = 3.0  # at most 5 s, where the processor is busy as well


@contextmanager
def progress_lines(
    emit: Callable[[str], None], subject: str = "", *, at_once: bool = False
) -> Generator[None]:
    """Emit a line soon after the block begins, and another every few seconds until it ends.

    Args:
        emit: takes a line, in a separate thread.
        subject: of the work, which begins each line.
        at_once: emit the first line before the block begins.
    """
    latest, ended = _Latest(subject), Event()

    def report() -> None:
        wait_s = EVERY_S if at_once else FIRST_S
        while not ended.wait(wait_s):
            emit(latest.line())
            wait_s = EVERY_S

    if at_once:
        emit(latest.line())
    thread = Thread(target=report, name="daceml progress", daemon=True)
    thread.start()
    try:
        with observed_by(latest):
            yield
    finally:
        ended.set()
        thread.join()


class _Latest:
    """The stage that runs, since when, and how many of its parts are done."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.began_s = time.monotonic()
        self.stage: tuple[Progress, float] | None = None  # and when it began

    def __call__(self, progress: Progress) -> None:
        known = self.stage
        continues = known is not None and known[0].stage == progress.stage
        self.stage = (progress, known[1] if known is not None and continues else time.monotonic())

    def line(self) -> str:
        now_s, stage = time.monotonic(), self.stage
        words = [self.subject] if self.subject else []
        if stage is None:
            words += [] if words else ["starting"]
        else:
            progress, since_s = stage
            words.append(progress.title)
            if progress.total:
                words.append(f"{progress.done} of {progress.total}")
            if 0 < progress.done < progress.total:
                left_s = (now_s - since_s) / progress.done * (progress.total - progress.done)
                words.append(f"about {left_s:.0f} s left")
        return f"{', '.join(words)} ({now_s - self.began_s:.0f} s)"

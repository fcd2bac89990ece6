"""Progress of long steps, for whoever wants to show it; where nobody observes, publishing costs nothing.

Steps publish from the thread that called them, so an observer hears of its own compilation only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a step stands.

    Attributes:
        stage: the name of the step, such as `export` or `kernels`.
        done: parts that are finished.
        total: parts in all; 0 where a step has no parts.
    """

    stage: str
    done: int = 0
    total: int = 0


Observer = Callable[[Progress], None]

_observer: ContextVar[Observer | None] = ContextVar("daceml_progress", default=None)


@contextmanager
def observed_by(observer: Observer) -> Generator[None]:
    """Call `observer` with everything that this context publishes in the block."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def publish(stage: str, done: int = 0, total: int = 0) -> None:
    """Tell the observer, if there is one, where a step stands."""
    observer = _observer.get()
    if observer is not None:
        observer(Progress(stage=stage, done=done, total=total))

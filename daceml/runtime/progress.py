"""Progress of long steps, for an observer; without one, publishing costs nothing.

Steps publish from the thread that called them, so an observer hears of its own compilation only.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

# Names of stages as a reader understands them; others are shown as they are.
_TITLES = {
    "load": "loading the model",
    "export": "capturing the model",
    "key": "searching the cache",
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
    "predict": "predicting variants",
    "measure": "measuring",
    "idle": "waiting for other programs to end",
    "again": "measuring again, disturbed by other programs",
    "intermediate values": "comparing intermediate values",
}


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

    @property
    def title(self) -> str:
        """The stage as a reader understands it."""
        return _TITLES.get(self.stage, self.stage)


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


def is_observed() -> bool:
    """Return whether this context shows progress."""
    return _observer.get() is not None


def publish(stage: str, done: int = 0, total: int = 0) -> None:
    """Tell the observer, if there is one, where a step stands."""
    observer = _observer.get()
    if observer is not None:
        observer(Progress(stage=stage, done=done, total=total))

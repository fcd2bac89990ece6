"""Seconds spent in each stage of one compilation."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from daceml.runtime.progress import publish


@dataclass
class Stages:
    """Seconds spent in each stage of one compilation."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Add the time of the block to a stage."""
        publish(name)
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

"""Where measurements go, and what is there already; an operation database is one such place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from daceml.operations.database.records import Entry, Operation


class Sink(Protocol):
    """Takes entries, and knows which it has; `daceml.operations.database.store.OpDatabase` is one."""

    def add(self, entry: Entry) -> object:
        """Keep an entry; once this returns, a process that is killed does not lose it."""
        ...

    def find(self, operation: Operation, *, device: str) -> Sequence[Entry]:
        """What is known of an operation on the devices of a name."""
        ...

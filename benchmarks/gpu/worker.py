"""A process that measures one case after the other, and is replaced when one of them fails.

A fault of a kernel leaves a device's context unusable for the whole process, so nothing that comes after one
may run there.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.gpu.case import Case
from benchmarks.gpu.reasons import reason_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

Row = dict[str, Any]


class Worker(Protocol):
    """Measures a case within so many seconds; a row with `failure` alone says why there is none."""

    def __call__(self, case: Case, limit_s: float) -> Row: ...


def measured(case: Case) -> Row:
    """What `measures.measure` returns; the driver needs nothing of what that imports."""
    from benchmarks.gpu.measures import measure

    return measure(case)


class WorkerProcess:
    """The process; it starts with the first case and has to be closed.

    Args:
        measure: a module's function.
    """

    def __init__(self, measure: Callable[[Case], Row] = measured) -> None:
        self.measure = measure
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None

    def __call__(self, case: Case, limit_s: float) -> Row:
        pipe = self._started()
        begun = time.monotonic()
        try:
            pipe.send(case)
            if not pipe.poll(limit_s):
                self.close(patience_s=0.0)
                return {"failure": f"took longer than {limit_s:.0f} s", "late": True}
            row: Row = pipe.recv()
        except (EOFError, ConnectionError):
            code = self._ended()
            row = {"failure": f"the process ended with exit code {code}"}
        if "failure" in row:
            self.close()
        return {**row, "seconds": time.monotonic() - begun}

    def close(self, patience_s: float = 5.0) -> None:
        """End the process: one that measures nothing ends with its pipe, another one after this time."""
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.join(patience_s)
            self._process.kill()
            self._process.join()
        self._process = self._pipe = None

    def _started(self) -> Connection:
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")  # a device's context does not survive a fork
            ours, theirs = context.Pipe()
            # No daemon: a compiler in it may start processes of its own.
            self._process = context.Process(target=_serve, args=(theirs, self.measure), daemon=False)
            self._process.start()
            theirs.close()
            self._pipe = ours
        return self._pipe

    def _ended(self) -> int | None:
        assert self._process is not None
        self._process.join(10)
        return self._process.exitcode


def _serve(pipe: Connection, measure: Callable[[Case], Row]) -> None:
    while True:
        try:
            case = pipe.recv()
        except EOFError:
            return
        try:
            row = measure(case)
        except Exception as error:
            row = {"failure": reason_of(error)}
        pipe.send(row)

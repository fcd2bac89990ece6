"""The process that measures: it is replaced by another one whenever a case fails."""

from __future__ import annotations

import os
import time

from benchmarks.gpu.case import Case
from benchmarks.gpu.worker import Row, WorkerProcess

LIMIT_S = 300.0  # nothing here takes a second on a quiet machine


def dying(case: Case) -> Row:
    """A measurement that ends in the way that its case is named after."""
    match case.name:
        case "dies":
            os._exit(3)
        case "raises":
            raise ValueError("no such\n  why: nobody knows")
        case "sleeps":
            time.sleep(LIMIT_S)
    return {"pid": os.getpid()}


def test_a_process_that_fails_is_replaced():
    worker = WorkerProcess(dying)

    def ask(name: str, limit_s: float = LIMIT_S) -> Row:
        return worker(Case(kind="check", name=name), limit_s)

    try:
        first = ask("fine")
        assert ask("fine")["pid"] == first["pid"]
        assert ask("raises")["failure"] == "ValueError: no such why: nobody knows"
        second = ask("fine")
        assert first["pid"] != second["pid"], "a failure may have left the device unusable"
        assert ask("dies")["failure"] == "the process ended with exit code 3"
        late = ask("sleeps", 0.1)
        assert late["late"] and late["failure"] == "took longer than 0 s"
        assert ask("fine")["pid"] != second["pid"]
    finally:
        worker.close()

"""Work in forked processes that may crash or hang: each is replaced when it does, and the case is known.

Every process is a copy of this one, so whatever the work needs should be imported before, and nothing that
starts threads should have run.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Tell = Callable[[dict[str, Any]], None]
Work = Callable[[int, Tell], None]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is known of one case.

    Attributes:
        told: what the work told, the latest value of each key.
        end: empty where it returned; else `signal N`, `timeout`, or `exit N`.
    """

    case: int
    told: dict[str, Any]
    end: str
    duration_s: float


@dataclass
class _Child:
    pid: int
    tasks: int
    answers: int
    case: int | None = None
    started: float = 0.0
    told: dict[str, Any] = field(default_factory=dict[str, Any])
    buffer: bytes = b""
    ended: bool = False


def run_cases(
    work: Work,
    cases: Sequence[int],
    *,
    processes: int = 2,
    limit_s: float = 120.0,
    memory_bytes: int = 12 << 30,
) -> Iterator[Outcome]:
    """Do each case in one of a few processes; outcomes come as they are ready.

    Args:
        work: takes a case, and a function that reports what it has found so far.
        limit_s: wall-clock seconds for one case.
        memory_bytes: of address space for each process.
    """
    waiting = list(reversed(cases))
    children: list[_Child] = []
    try:
        while waiting or any(child.case is not None for child in children):
            while waiting and len(children) < processes:
                children.append(_fork(work, memory_bytes, children))
            for child in children:
                if child.case is None and waiting:
                    _give(child, waiting.pop())
            ready, _, _ = select.select([c.answers for c in children], [], [], 0.5)
            for child in list(children):
                outcome = _read(child) if child.answers in ready else None
                if child.case is not None and outcome is None and time.monotonic() - child.started > limit_s:
                    outcome = _outcome(child, "timeout")
                if outcome is not None:
                    yield outcome
                    child.case = None
                if child.ended or (outcome is not None and outcome.end):
                    _stop(child)
                    children.remove(child)
    finally:
        for child in children:
            _stop(child)


def _fork(work: Work, memory_bytes: int, others: Sequence[_Child]) -> _Child:
    tasks, give = os.pipe()
    answers, tell = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        os.close(tasks)
        os.close(tell)
        return _Child(pid=pid, tasks=give, answers=answers)
    for descriptor in (give, answers, *(d for child in others for d in (child.tasks, child.answers))):
        os.close(descriptor)
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        while line := os.read(tasks, 8):
            work(int.from_bytes(line, "little"), lambda record: _write(tell, record))
            _write(tell, None)
        code = 0
    finally:
        os._exit(code)


def _write(descriptor: int, record: dict[str, Any] | None) -> None:
    data = (json.dumps(record) + "\n").encode()
    while data:
        data = data[os.write(descriptor, data) :]


def _give(child: _Child, case: int) -> None:
    child.case, child.told, child.started = case, {}, time.monotonic()
    os.write(child.tasks, case.to_bytes(8, "little"))


def _read(child: _Child) -> Outcome | None:
    data = os.read(child.answers, 1 << 16)
    if not data:
        child.ended = True
        code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        end = f"signal {-code}" if code < 0 else f"exit {code}"
        return None if child.case is None else _outcome(child, end)
    *lines, child.buffer = (child.buffer + data).split(b"\n")
    for line in lines:
        record = json.loads(line)
        if record is None:
            return _outcome(child, "")
        child.told |= record
    return None


def _outcome(child: _Child, end: str) -> Outcome:
    assert child.case is not None
    return Outcome(case=child.case, told=child.told, end=end, duration_s=time.monotonic() - child.started)


def _stop(child: _Child) -> None:
    if not child.ended:
        os.kill(child.pid, signal.SIGKILL)
        os.waitpid(child.pid, 0)
    os.close(child.tasks)
    os.close(child.answers)

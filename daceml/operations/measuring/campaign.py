"""A campaign: many operations measured by an executor's workers, resumed where it was left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from daceml.errors import DacemlError
from daceml.operations.database.records import Direction, Entry, Environment, Operation
from daceml.operations.measuring.calls import Call
from daceml.operations.measuring.machine import environment
from daceml.operations.measuring.one_operation import Settings, measure
from daceml.operations.measuring.sinks import Sink


class Measurable(Protocol):
    """What a campaign measures.

    Attributes:
        operation: the record of it.
        title: what reports call it.
    """

    @property
    def operation(self) -> Operation: ...
    @property
    def title(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Job:
    """One call of an ATen operator to be measured."""

    call: Call
    direction: Direction = "forward"

    @property
    def operation(self) -> Operation:
        return self.call.operation(self.direction)

    @property
    def title(self) -> str:
        return self.call.operator


@dataclass(frozen=True, kw_only=True)
class Refused:
    """An operation without a time, and the sentence that says why."""

    job: Measurable
    reason: str


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a campaign stands.

    Attributes:
        done: measured, refused or known before.
        left_s: seconds that the rest takes at the pace so far; None before anything was measured.
    """

    done: int
    total: int
    left_s: float | None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a campaign brought.

    Attributes:
        measured: entries that the sink was given.
        known: jobs that it had already.
        refused: jobs without a time.
        left: jobs that were not begun, or not finished: the budget was spent, or somebody interrupted.
        interrupted: whether it was Ctrl-C.
    """

    measured: tuple[Entry, ...] = ()
    known: int = 0
    refused: tuple[Refused, ...] = ()
    left: tuple[Measurable, ...] = ()
    interrupted: bool = False


Measure = Callable[[Any, Settings], Entry]


def measured_entry(job: Job, settings: Settings) -> Entry:
    """Measure one job in this process; what a campaign's workers run."""
    duration = measure(job.call, settings, direction=job.direction)
    return Entry(
        operation=job.operation,
        environment=environment(settings.device),
        duration=duration,
        provenance="measured",
        source="daceml measure",
        licence="NOASSERTION",  # of SPDX: who measured has not said
        date=datetime.now(UTC).date().isoformat(),
    )


@dataclass(kw_only=True)
class Campaign:
    """Jobs, and how they are carried out.

    Attributes:
        settings: of every measurement.
        executor: makes one; called again where a worker died and took it along.
        workers: jobs that are with the executor at a time.
        budget_s: seconds after which no further job begins.
        observe: hears after every job where the campaign stands.
        where: the environment that workers measure in; that of this process where none is given.
        measure_job: what workers run on each job; picklable.
        clock_s: a clock that never goes back.
    """

    settings: Settings = field(default_factory=Settings)
    executor: Callable[[], AbstractContextManager[Executor]]
    workers: int = 1
    budget_s: float = float("inf")
    observe: Callable[[Standing], None] = lambda standing: None
    where: Environment | None = None
    measure_job: Measure = measured_entry
    clock_s: Callable[[], float] = time.monotonic

    def run(self, jobs: Iterable[Measurable], sink: Sink) -> Outcome:
        """Measure what the sink does not have for this device and software; jobs that are equal, once."""
        where = self.where or environment(self.settings.device)
        every = list({_identity(job): job for job in jobs}.values())
        todo = [job for job in every if not _known(job, sink, where, self.settings)]
        return _Run(self, sink, todo, known=len(every) - len(todo)).outcome()


class _Run:
    """One run of a campaign."""

    def __init__(self, campaign: Campaign, sink: Sink, todo: Sequence[Measurable], *, known: int) -> None:
        self.campaign, self.sink, self.known = campaign, sink, known
        self.waiting = deque(todo)
        self.suspects: deque[Measurable] = deque()  # with a worker when one died: each is tried again, alone
        self.total = known + len(todo)
        self.measured: list[Entry] = []
        self.refused: list[Refused] = []
        self.flying: dict[Future[Entry], Measurable] = {}
        self.begin_s = campaign.clock_s()

    def outcome(self) -> Outcome:
        interrupted = False
        try:
            while self.more():
                with self.campaign.executor() as executor:
                    try:
                        self.drive(executor)
                    except KeyboardInterrupt:
                        interrupted = True
                        executor.shutdown(wait=False, cancel_futures=True)
                        break
        except KeyboardInterrupt:  # a second time, while workers end
            interrupted = True
        self.collect(done for done in self.flying if done.done() and not done.cancelled())
        return Outcome(
            measured=tuple(self.measured),
            known=self.known,
            refused=tuple(self.refused),
            left=(*self.flying.values(), *self.suspects, *self.waiting),
            interrupted=interrupted,
        )

    def more(self) -> bool:
        spent = self.campaign.clock_s() - self.begin_s >= self.campaign.budget_s
        return bool(self.waiting or self.suspects) and not spent

    def drive(self, executor: Executor) -> None:
        """Until nothing is left to begin and nothing is with a worker, or the executor broke."""
        while self.more() or self.flying:
            if not self.submit(executor):
                return
            done, _ = wait(self.flying, return_when=FIRST_COMPLETED)
            if not self.collect(done):
                return

    def submit(self, executor: Executor) -> bool:
        """Fill the workers; False if the executor is broken."""
        limit = 1 if self.suspects else self.campaign.workers
        while self.more() and len(self.flying) < limit:
            queue = self.suspects or self.waiting
            try:
                future = executor.submit(self.campaign.measure_job, queue[0], self.campaign.settings)
            except BrokenExecutor as error:
                self.broken(error)
                return False
            self.flying[future] = queue.popleft()
        return True

    def collect(self, done: Iterable[Future[Entry]]) -> bool:
        """Take what workers brought; False if the executor is broken."""
        for future in list(done):
            try:
                entry = future.result()
            except BrokenExecutor as error:
                self.broken(error)
                return False
            except DacemlError as error:
                self.refuse(
                    self.flying.pop(future), f"{error.what}: {error.why}" if error.why else error.what
                )
            except Exception as error:
                self.refuse(self.flying.pop(future), f"{type(error).__name__}: {error}")
            else:
                self.sink.add(entry)
                self.measured.append(entry)
                del self.flying[future]
                self.tell()
        return True

    def broken(self, error: BrokenExecutor) -> None:
        """A worker died. One job that was alone did it; of several, each is tried again alone."""
        jobs = list(self.flying.values())
        self.flying.clear()
        if len(jobs) == 1:
            self.refuse(jobs[0], f"it ended the process that measured it: {error}")
        else:
            self.suspects.extend(jobs)

    def refuse(self, job: Measurable, reason: str) -> None:
        self.refused.append(Refused(job=job, reason=reason))
        self.tell()

    def tell(self) -> None:
        taken = len(self.measured) + len(self.refused)
        left = self.total - self.known - taken
        pace_s = (self.campaign.clock_s() - self.begin_s) / taken if taken else None
        left_s = None if pace_s is None else min(pace_s * left, self.campaign.budget_s)
        self.campaign.observe(Standing(done=self.known + taken, total=self.total, left_s=left_s))


def _identity(job: Measurable) -> tuple[Any, ...]:
    one = job.operation
    return (
        one.operator,
        one.operands,
        one.direction,
        tuple(sorted((name, type(value).__name__, value) for name, value in one.attributes.items())),
    )


def _known(job: Measurable, sink: Sink, where: Environment, settings: Settings) -> bool:
    return any(
        entry.duration.mode == settings.mode
        and entry.environment.fingerprint == where.fingerprint
        and dict(entry.environment.software) == dict(where.software)
        and entry.provenance == "measured"
        for entry in sink.find(job.operation, device=where.device)
    )

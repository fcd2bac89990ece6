"""Times of programs' steps on this machine, kept in an operation database: what one exploration measures the
next one knows."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import date
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from daceml.config import config
from daceml.errors import DatabaseAccessError, DatabaseFileError
from daceml.exploration.microbenchmarks import COURSE, measured
from daceml.operations.database.records import Duration, Entry, Environment, Operation
from daceml.operations.database.store import OpDatabase
from daceml.runtime.timing.comparison import disturbing
from daceml.runtime.timing.machine_fingerprint import fingerprint
from daceml.runtime.timing.machine_load import Others
from daceml.toolchain.cache import Cache
from daceml.toolchain.processor import cpu_model
from daceml.toolchain.trusted_paths import make_private
from daceml.tuning.machine_speeds import this_machine
from daceml.tuning.step_features import AMOUNTS, StepFacts
from daceml.tuning.step_times import StepTimes

log = logging.getLogger(__name__)

OPERATOR, PART = "step", "part of the course"
"""What rows of the database are of: one step of a compiled program, a kernel or a call of torch's; or what
has been measured ahead of any model, with how long that took."""


class Library:
    """The steps that were measured on this machine.

    Args:
        database: None where there is none: then nothing is kept.
    """

    def __init__(self, database: OpDatabase | None, cache: Cache) -> None:
        self.database, self.cache = database, cache
        self._least_us: dict[str, float] | None = None  # until somebody has looked
        self.environment = Environment(device=cpu_model(), fingerprint=fingerprint())

    @classmethod
    def of_this_machine(cls, folder: Path | None = None) -> Self:
        """That of a folder; without its database where this cannot be used, which is logged.

        Args:
            folder: None is that of the cache.
        """
        folder = Path(config().cache_folder) if folder is None else folder
        cache, path = Cache(folder), folder / "steps.db"
        try:
            make_private(folder)
            return cls(OpDatabase(path), cache)
        except (DatabaseFileError, DatabaseAccessError, OSError) as error:
            log.warning("times of steps are not kept: %s", error)
            return cls(None, cache)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.database is not None:
            self.database.close()

    def times(self) -> StepTimes:
        """What is known of steps on this machine."""
        found = StepTimes(this_machine(self.cache))
        for step, us in self._known():
            found.learn([step], [us], own=False)
        return found

    def measure_course(self, steps: Sequence[StepFacts]) -> None:
        """Measure usual operators, each part once for each machine: a minute where nothing is known yet.

        What others disturbed is measured a second time when they are gone.

        Args:
            steps: of a program: parts that say nothing of it are left for others.
        """
        if self.database is None:
            return
        begun, done = self._parts()
        for part in COURSE:
            if part.title not in done and part.serves(steps):
                log.info("%s: steps of usual operators are measured, once for this machine", part.title)
                others, start_s = Others(), time.monotonic()
                found = measured(part)
                if not found:
                    continue  # what refused it may be mended by the next time
                self.add([step for step, _ in found], [us for _, us in found])
                # once: on a machine that is never quiet for long it would never end
                again = part.title not in begun and disturbing(others.share())
                told = {"costs": _COSTS, "part": part.title, "again": again}
                operation = Operation(operator=PART, operands=(), attributes=told)
                self.database.add_all([self._entry(operation, time.monotonic() - start_s)])

    def _parts(self) -> tuple[set[str], set[str]]:
        """Titles of parts that were measured, and of those that need not be measured now."""
        told = [entry.operation.attributes for entry in self._entries(PART)]
        begun = {str(part["part"]) for part in told}
        clean = {str(part["part"]) for part in told if not part.get("again")}
        return begun, clean if begun != clean and _quiet() else begun

    def add(self, steps: Sequence[StepFacts], took_us: Sequence[float]) -> None:
        """Keep what steps took, where that is less than what was known."""
        if self.database is None:
            return
        if self._least_us is None:
            self._least_us = {step.key: us for step, us in self._known()}
        least: dict[str, tuple[StepFacts, float]] = {}
        for step, us in zip(steps, took_us, strict=True):
            if 0 < us < self._least_us.get(step.key, inf):
                self._least_us[step.key] = us
                least[step.key] = step, us
        self.database.add_all(self._entry(_operation(step), us / 1e6) for step, us in least.values())

    def _known(self) -> list[tuple[StepFacts, float]]:
        """Steps of this machine whose costs are complete, and their microseconds."""
        return [
            (_facts(entry.operation), entry.duration.median_s * 1e6)
            for entry in self._entries(OPERATOR)
            if entry.operation.attributes.keys() >= _NEEDED
        ]

    def _entries(self, operator: str) -> list[Entry]:
        """Those of this machine, as costs are counted today."""
        if self.database is None:
            return []
        return [
            entry
            for entry in self.database.entries()
            if entry.environment == self.environment
            and entry.operation.operator == operator
            and entry.operation.attributes.get("costs") == _COSTS
        ]

    def _entry(self, operation: Operation, took_s: float) -> Entry:
        return Entry(
            operation=operation,
            environment=self.environment,
            duration=Duration(median_s=took_s),
            provenance="measured",
            source="daceml explore",
            licence="none",
            date=date.today().isoformat(),
        )


def _operation(step: StepFacts) -> Operation:
    return Operation(
        operator=OPERATOR,
        operands=(),
        attributes={
            "costs": _COSTS,
            "kind": step.kind,
            "function": step.function,
            "variety": "; ".join(step.variety),
            "pieces": step.pieces,
            "reach": step.reach,
        }
        | {name: getattr(step, name) for name in AMOUNTS},
        kernel=step.key,
    )


def _quiet() -> bool:
    """Whether nobody else uses this machine now."""
    others = Others()
    time.sleep(_LOOKING_S)
    return not disturbing(others.share())


_LOOKING_S = 0.3
_COSTS = 5  # raised whenever `sdfg/costs.py` counts in another way: what older rows say is not compared
_NEEDED = {"function", "variety", "pieces", "reach", *AMOUNTS}


def _facts(operation: Operation) -> StepFacts:
    told: dict[str, Any] = dict(operation.attributes)
    amounts = {name: int(told[name]) for name in ("pieces", *AMOUNTS)}
    return StepFacts(
        key=operation.kernel, kind=str(told["kind"]), function=str(told["function"]),
        variety=tuple(filter(None, str(told["variety"]).split("; "))),
        reach=tuple(map(int, told["reach"])), **amounts,
    )  # fmt: skip

"""The search among variants: predict all, measure those that may be the best, and stop when none is left."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from daceml.errors import ResultsDifferError, first_line
from daceml.exploration.exploration_request import Question, question
from daceml.exploration.other_devices import elsewhere
from daceml.exploration.results import Exploration, Objective, Outcome, Row, Times
from daceml.exploration.variant_space import Space
from daceml.exploration.variant_timings import Programs
from daceml.frontend.capture.arguments import Arguments
from daceml.runtime.timing.machine_fingerprint import fingerprint
from daceml.tuning.variant import Variant

if TYPE_CHECKING:
    from daceml.prediction.prices import Price
    from daceml.tuning.model_call import Lowered, Subject
    from daceml.tuning.step_times import ProgramTime

log = logging.getLogger(__name__)

_PREDICTING = 0.7  # of the budget, after which no further variant is lowered
_MEASURING = 0.1  # of the budget, for one comparison
_EAGER = 0.04  # of the budget, for comparing with PyTorch
_COURSE_BUDGET_S = 100.0  # from which there is time for usual operators, the first time on a machine


def explored(
    subject: Subject,
    *,
    budget_s: float,
    devices: Sequence[str] = (),
    objective: Objective = "time",
    precisions: Sequence[str] = (),
    batches: Sequence[int] = (),
    ranks: Sequence[int] = (),
    prices: Mapping[str, Price] | None = None,
    measurements: int = 4,
    most: int = 160,
    seed: int = 0,
    observe: Callable[[Row], None] | None = None,
) -> Exploration:
    """Predict every variant of a subject, measure those that may be the best, and say which is.

    Arguments and errors as of `daceml.explore`.
    """
    asked = question(
        subject, objective=objective, devices=devices, precisions=precisions, batches=batches, ranks=ranks,
        prices=prices,
    )  # fmt: skip
    subject.require_processor()
    start_s = time.monotonic()
    course = budget_s >= _COURSE_BUDGET_S
    limit_s = _MEASURING * budget_s
    with Programs.measured(subject, limit_s=limit_s, seed=seed, course=course) as programs:
        search = _Search(
            programs=programs, objective=objective, budget_s=budget_s, start_s=start_s,
            measurements=measurements, most=most, observe=observe or (lambda _: None),
        )  # fmt: skip
        search.run(asked)
    model = subject.module
    for row in elsewhere(model, subject.args, subject.kwargs, training=subject.training, asked=asked):
        search.note(row)
    rows = search.ordered()
    return Exploration(
        model=type(model).__name__,
        inputs=Arguments(subject.args, subject.kwargs).describe(model.forward),
        training=subject.training,
        objective=objective,
        machine=fingerprint(),
        seed=seed,
        budget_s=budget_s,
        spent_s=round(search.spent_s, 3),
        complete=search.complete,
        rows=rows,
        winner=search.winner(rows),
        compiled=sum(row.measured is not None for row in rows),
        predicted=sum(row.predicted_ms is not None for row in rows),
        ended="" if search.complete else search.ended,
        slowness=programs.slowness,
        foreign_share=programs.foreign_share,
        eager=search.eager,
    )


@dataclass(kw_only=True)
class _Search:
    programs: Programs
    objective: Objective
    budget_s: float
    measurements: int
    most: int
    observe: Callable[[Row], None]
    start_s: float
    complete: bool = True
    ended: str = ""
    eager: Times | None = None
    rows: dict[Variant, Row] = field(default_factory=dict[Variant, Row])
    seen: dict[str, Variant] = field(default_factory=dict[str, Variant])  # identity -> the first of it

    def run(self, asked: Question) -> None:
        """Predict and measure the variants of this machine."""
        programs, standard = self.programs, self.programs.lowered(Variant())
        self.seen[standard.identity] = Variant()
        row = _row(standard, programs.first, "standard recipe")
        self.note(replace(row, measured=programs.measure(Variant())))
        self._measure_eager(_EAGER * self.budget_s)
        subject = self.programs.subject
        space = Space(
            training=subject.training, freezable=not subject.not_freezable,
            precisions=asked.precisions, batches=asked.batches,
        )  # fmt: skip
        self._predict(space)
        if self.objective != "cost":  # nothing here has a price
            self._measure()
            if self.left():
                self._incomplete(
                    f"{self.measurements} were measured besides the standard one, and measurements="
                    f"{self.measurements} allows no more"
                )

    @property
    def spent_s(self) -> float:
        """Since it began."""
        return time.monotonic() - self.start_s

    def note(self, row: Row) -> None:
        """Take a row over."""
        self.rows[row.variant] = row
        self.observe(row)

    def _measure_eager(self, limit_s: float) -> None:
        try:
            self.eager = self.programs.eager(limit_s)
        except Exception as error:  # whatever the user's modules raise when they are copied
            log.warning("PyTorch itself is not measured: %s", first_line(error))

    # ---- predictions

    def _predict(self, space: Space) -> None:
        for variant in space.singles():
            self._lower(variant)
        different = [row for row in self.rows.values() if row.outcome == "predicted"]
        different.sort(key=lambda row: row.predicted_ms or 0.0)
        for variant in space.combined([row.variant for row in different]):
            if self._lowered_enough():
                return
            self._lower(variant)

    def _lower(self, variant: Variant) -> None:
        if variant in self.rows:
            return
        if self._lowered_enough():
            return
        try:
            row = self._predicted(variant)
        except Exception as error:  # whatever a pass trips over: the standard variant stands
            self.note(Row(variant=variant, outcome="refused", why=first_line(error)))
            return
        twin = self.seen.setdefault(self.programs.lowered(variant).identity, variant)
        if twin != variant:
            row = replace(row, outcome="same program", why=f"the same as {twin.title}")
        self.note(row)

    def _lowered_enough(self) -> bool:
        if len(self.seen) >= self.most:
            self._incomplete(
                f"{self.most} different programs were predicted, and most={self.most} allows no more"
            )
        elif self.spent_s > _PREDICTING * self.budget_s:
            self._incomplete("its budget ended before all variants were predicted")
        return not self.complete

    def _incomplete(self, why: str) -> None:
        self.complete, self.ended = False, self.ended or why

    def _predicted(self, variant: Variant) -> Row:
        return _row(self.programs.lowered(variant), self.programs.predicted(variant), "predicted")

    # ---- measurements

    def _measure(self) -> None:
        """The most promising first, until none of the rest can be better than the best."""
        longest_s = 0.0
        for _ in range(self.measurements):
            left, begun_s = self.left(), self.spent_s
            if not left:
                return
            if begun_s + longest_s > self.budget_s:
                self._incomplete("its budget ended")
                return
            self._measured(min(left, key=self._promise))
            longest_s = max(longest_s, self.spent_s - begun_s)

    def left(self) -> list[Row]:
        """Of variants that are not measured, and may be better than the best that is."""
        best = min(map(self._value, (row for row in self.rows.values() if row.measured is not None)))
        return [row for row in self.rows.values() if row.outcome == "predicted" and self._least(row) < best]

    def _promise(self, row: Row) -> tuple[float, str]:
        first = self._least(row) if self.objective == "memory" else row.predicted_ms
        return first or 0.0, row.variant.title

    def _least(self, row: Row) -> float:
        """What it may reach of the objective."""
        if self.objective == "memory":
            return _bytes(row)
        return row.low_ms or 0.0

    def _value(self, row: Row) -> float:
        if self.objective == "memory":
            return _bytes(row)
        if self.objective == "cost":
            return float("inf") if row.usd_per_million is None else row.usd_per_million
        return row.best_known_ms or float("inf")

    def _measured(self, row: Row) -> None:
        try:
            times = self.programs.measure(row.variant)
        except ResultsDifferError as error:
            self.note(replace(row, outcome="results differ", why=error.why))
            return
        except Exception as error:  # whatever a pass or the compiler trips over
            self.note(replace(row, outcome="refused", why=first_line(error)))
            return
        self.note(replace(row, outcome="measured", measured=times))
        # what is left, with what has been learned; what was measured keeps what was predicted before
        for other in list(self.rows.values()):
            if other.outcome == "predicted":
                self.rows[other.variant] = self._predicted(other.variant)

    # ---- results

    def ordered(self) -> tuple[Row, ...]:
        standard, *others = self.rows.values()
        known = [row for row in others if row.best_known_ms is not None]
        unknown = [row for row in others if row.best_known_ms is None]
        key: Callable[[Row], tuple[float, str]] = lambda row: (self._value(row), row.variant.title)  # noqa: E731
        return (standard, *sorted(known, key=key), *sorted(unknown, key=lambda row: row.variant.title))

    def winner(self, rows: Sequence[Row]) -> int:
        """The best of those that were measured and are better beyond doubt; by cost, the best of all."""
        if self.objective == "cost":
            return min(range(len(rows)), key=lambda place: self._value(rows[place]))
        sure = [
            place
            for place, row in enumerate(rows)
            if row.measured is not None
            and (place == 0 or self.objective == "memory" or row.measured.ratio_high < 1)
        ]
        return min(sure, key=lambda place: self._value(rows[place]))


def _bytes(row: Row) -> float:
    return float("inf") if row.memory_bytes is None else float(row.memory_bytes)


def _row(lowered: Lowered, predicted: ProgramTime, outcome: Outcome) -> Row:
    return Row(
        variant=lowered.variant,
        outcome=outcome,
        predicted_ms=predicted.us / 1e3,
        low_ms=predicted.low_us / 1e3,
        high_ms=predicted.high_us / 1e3,
        measured_share=predicted.measured_share,
        memory_bytes=lowered.memory_bytes,
        moved_bytes=lowered.moved_bytes,
        kernels=lowered.kernels,
    )

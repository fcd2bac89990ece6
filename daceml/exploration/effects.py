"""Effects of passes and additions on the time of a step, among all other passes and alone.

Without a pass the others may do more, or less: its effect among all others and its effect alone differ by its
interactions with them. Measurements that other programs disturb are repeated for `PATIENCE_S`; a figure that
rests on one that remains disturbed is not given.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from daceml.errors import ExplorationError, first_line
from daceml.exploration.additions import addition_named, passes_of
from daceml.exploration.pass_names import askable_passes, known_passes, pass_named
from daceml.exploration.variant_timings import Programs
from daceml.module.module import eager_module
from daceml.runtime.progress import publish
from daceml.tuning.model_call import Subject
from daceml.tuning.variant import Variant

if TYPE_CHECKING:
    from torch import nn


PATIENCE_S = 20.0
"""For all repetitions of measurements that other programs disturbed."""
_WIDEST = 3.0  # the upper end of an interval over its lower end, beyond which it says nothing


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A time over another one; low and high hold nine of ten predictions, or the median with 99 %."""

    value: float
    low: float
    high: float

    @classmethod
    def same(cls) -> Self:
        """Of a program over itself."""
        return cls(value=1.0, low=1.0, high=1.0)

    def inverse(self) -> Ratio:
        """The other way round."""
        return Ratio(value=1 / self.value, low=1 / self.high, high=1 / self.low)

    @property
    def beyond_doubt(self) -> bool:
        """Whether it is not 1."""
        return self.high < 1 or self.low > 1

    @property
    def known(self) -> bool:
        """Whether its interval says something: its ends differ by a factor of 3 at most."""
        return self.high <= _WIDEST * self.low

    def meets(self, other: Ratio) -> bool:
        """Whether the intervals of both overlap, in whole percents."""
        return round(self.low, 2) <= round(other.high, 2) and round(other.low, 2) <= round(self.high, 2)


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A prediction whose interval lies apart from that of the measurement.

    Attributes:
        where: "among all" other passes, or "alone".
    """

    where: str
    predicted: Ratio
    measured: Ratio


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Of one pass, or addition, as the time of a step with it over that without; below 1 it helps.

    Attributes:
        among: next to all other passes of the standard recipe; alone: without any other. None where it is not
            known, see `unmeasured` and `why`.
        measured_among, measured_alone: the same, as it was measured; None where it was not.
        changes: whether programs with and without it differ at all.
        frozen: whether weights do not change any more, with it and without: it runs only there.
        addition: whether it is no pass of the standard recipe.
        disturbance: what says that others ran beside the measurements; "" where nothing does.
        busy: what others used of the machine beside a measurement that a figure would follow from; "" where
            every figure is known.
        unmeasured: names of the figures that are not given for that reason, such as "among".
        why: why it could not be told.
    """

    name: str
    among: Ratio | None
    alone: Ratio | None
    measured_among: Ratio | None = None
    measured_alone: Ratio | None = None
    changes: bool = True
    frozen: bool = False
    addition: bool = False
    disturbance: str = ""
    busy: str = ""
    unmeasured: tuple[str, ...] = ()
    why: str = ""

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """Where the interval that was measured lies apart from the one that was predicted."""
        pairs = {
            "among all": (self.among, self.measured_among),
            "alone": (self.alone, self.measured_alone),
        }
        return tuple(
            Disagreement(where=where, predicted=predicted, measured=measured)
            for where, (predicted, measured) in pairs.items()
            if predicted is not None
            and measured is not None
            and predicted.known
            and measured.known
            and not predicted.meets(measured)
        )

    @property
    def interaction(self) -> float | None:
        """How many times more it takes away among others than alone; below 1, others need it to be there."""
        if self.among is None or self.alone is None or not (self.among.known and self.alone.known):
            return None
        return self.among.value / self.alone.value


def effects(
    model: nn.Module,
    *inputs: Any,
    passes: Sequence[str] = (),
    additions: Sequence[str] = (),
    training: bool | None = None,
    measure: bool = False,
    alone: bool = True,
    limit_s: float = 10.0,
    course: bool = False,
    observe: Callable[[Effect], None] | None = None,
    **named: Any,
) -> tuple[Effect, ...]:
    """What passes of the standard recipe are worth for a model, and what might be added to it.

    Args:
        inputs, named: of the call.
        passes: names, such as fuse_subgraphs; those that run only where weights are frozen are told there;
            empty is all others that the situation has, if nothing is added.
        additions: what the standard recipe does not do: bf16, freeze, products-in-loops; see `additions.py`.
        training: whether a step is a forward and a backward pass; None: whether the model is in training
            mode.
        measure: compile and measure, besides predicting.
        alone: also what each does without the others.
        limit_s: of one measurement.
        course: measure usual operators first, once for each machine: half a minute for better predictions.
        observe: is given each effect as soon as it is known.
    Returns:
        Effects, without the figures that other programs disturbed for longer than `PATIENCE_S`.
    Raises:
        ExplorationError: there is no such pass or addition, or the model cannot be explored.
    """
    model = eager_module(model)
    subject = Subject(model, inputs, named, training=model.training if training is None else training)
    subject.require_processor()
    names = known_passes(subject.training)
    added = {name: addition_named(name, subject.training) for name in additions}
    known = askable_passes(subject.training)
    asked = [pass_named(name, known) for name in passes] or ([] if added else names)
    frozen = next((name for name in asked if name not in names), None)
    if frozen is not None and subject.not_freezable:
        raise ExplorationError(
            f"{frozen} runs where weights are frozen", why=subject.not_freezable, fix="leave it out"
        )
    found: list[Effect] = []
    with Programs.measured(subject, limit_s=limit_s, course=course, patience_s=PATIENCE_S) as programs:
        search = _Effects(programs, measure=measure)
        made = itertools.chain(
            (search.of(name, alone=alone, frozen=name not in names) for name in asked),
            (search.of_addition(name, variant, alone=alone) for name, variant in added.items()),
        )
        for effect in made:
            found.append(effect)
            if observe is not None:
                observe(effect)
    return tuple(found)


_Over = Callable[[Variant, Variant], tuple[Ratio, str]]


@dataclass
class _Effects:
    programs: Programs
    measure: bool = field(kw_only=True)

    def of(self, name: str, *, alone: bool, frozen: bool) -> Effect:
        """Of a pass of the standard recipe; of a frozen one where weights are frozen."""
        base = Variant(freeze=frozen)
        pair = (replace(base, only=(name,)), replace(base, only=())) if alone else None
        return self._told(name, (base, replace(base, without=(name,))), pair)

    def of_addition(self, name: str, variant: Variant, *, alone: bool) -> Effect:
        """Of what the standard recipe does not do."""
        passes = passes_of(variant) if alone else None
        pair = None if passes is None else (replace(variant, only=passes), Variant(only=passes))
        return replace(self._told(name, (variant, Variant()), pair), addition=True)

    def _told(
        self, name: str, among: tuple[Variant, Variant], alone: tuple[Variant, Variant] | None
    ) -> Effect:
        """Of what tells two variants apart.

        Args:
            among: with it and without it, beside all others.
            alone: with it and nothing else, and without anything; None where that is not asked for.
        """
        publish("predict")
        why: list[str] = []
        busy: dict[str, str] = {}  # by the figure that it leaves out

        def told(figure: str, over: _Over, pair: tuple[Variant, Variant]) -> Ratio | None:
            try:
                if self._same(*pair):
                    return Ratio.same()
                found, disturbed = over(*pair)
            except Exception as error:  # whatever the others trip over without it
                why.append(first_line(error))
                return None
            if disturbed:
                busy[figure] = disturbed
                return None
            return found

        predicted = told("among", self._predicted, among)
        by_itself = None if alone is None else told("alone", self._predicted, alone)
        measured = measured_alone = None
        if self.measure and predicted is not None:
            measured = told("measured_among", self._measured, among)
        if self.measure and alone is not None and by_itself is not None:
            measured_alone = told("measured_alone", self._measured, alone)
        return Effect(
            name=name,
            among=predicted,
            alone=by_itself,
            measured_among=measured,
            measured_alone=measured_alone,
            changes=not self._known_same(among),
            frozen=among[1].freeze,
            disturbance=self.programs.disturbance,
            busy=next(iter(busy.values()), ""),
            unmeasured=tuple(busy),
            why="; ".join(dict.fromkeys(why)),
        )

    def _predicted(self, variant: Variant, base: Variant) -> tuple[Ratio, str]:
        """With what disturbed the measurement of the standard variant, from which it follows."""
        found = self.programs.ratio(variant, base)
        return Ratio(value=found.value, low=found.low, high=found.high), self.programs.busy(Variant())

    def _measured(self, variant: Variant, base: Variant) -> tuple[Ratio, str]:
        """Both were measured beside the standard variant; with what disturbed that."""
        ours, theirs = self.programs.measure(variant), self.programs.measure(base)
        found = Ratio(
            value=ours.ratio / theirs.ratio,
            low=ours.ratio_low / theirs.ratio_high,
            high=ours.ratio_high / theirs.ratio_low,
        )
        return found, self.programs.busy(variant, base)

    def _known_same(self, pair: tuple[Variant, Variant]) -> bool:
        try:
            return self._same(*pair)
        except Exception:  # a pass refuses: `why` says so
            return False

    def _same(self, one: Variant, other: Variant) -> bool:
        return self.programs.lowered(one).identity == self.programs.lowered(other).identity

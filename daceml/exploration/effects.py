"""What one optimisation is worth: the standard recipe without it, or with it, it alone, and their distance.

An effect is by how much a step takes less time for a change. Without a pass the others may do more, or less:
its effect among all others and its effect alone differ by its interactions with them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from daceml.errors import ExplorationError, first_line
from daceml.exploration.additions import addition_named, passes_of
from daceml.exploration.programs import Programs
from daceml.exploration.variant import Variant

if TYPE_CHECKING:
    from torch import nn

    from daceml.exploration.step_times import ProgramTime


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A time over another one; low and high hold nine of ten predictions, or the median with 99 %."""

    value: float
    low: float
    high: float

    def inverse(self) -> Ratio:
        """The other way round."""
        return Ratio(value=1 / self.value, low=1 / self.high, high=1 / self.low)

    @property
    def beyond_doubt(self) -> bool:
        """Whether it is not 1."""
        return self.high < 1 or self.low > 1


@dataclass(frozen=True, kw_only=True)
class Effect:
    """Of one pass, or addition, as the time of a step with it over that without; below 1 it helps.

    Attributes:
        among: beside all other passes of the standard recipe; alone: beside none.
        measured_among, measured_alone: the same, as it was measured; None where it was not.
        changes: whether programs with and without it differ at all.
        why: why it could not be told.
    """

    name: str
    among: Ratio | None
    alone: Ratio | None
    measured_among: Ratio | None = None
    measured_alone: Ratio | None = None
    changes: bool = True
    why: str = ""

    @property
    def interaction(self) -> float | None:
        """How many times more it takes away among others than alone; below 1, others need it to be there."""
        if self.among is None or self.alone is None:
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
        passes: names of passes, or of what they are known as: fuse_subgraphs or SubgraphFusion; empty is all
            that the situation has, if nothing is added.
        additions: what the standard recipe does not do: bf16, freeze, products-in-loops; see `additions.py`.
        training: whether a step is a forward and a backward pass; None: whether the model is in training
            mode.
        measure: compile and measure, besides predicting.
        alone: also what each does without the others.
        limit_s: of one measurement.
        course: measure usual operators first, once for each machine: half a minute for better predictions.
        observe: is given each effect as soon as it is known.
    Raises:
        ExplorationError: there is no such pass or addition, or the model cannot be explored.
    """
    from daceml.exploration.subject import Subject

    subject = Subject(model, inputs, named, training=model.training if training is None else training)
    subject.require_processor()
    names = known_passes(subject.training)
    added = {name: addition_named(name, subject.training) for name in additions}
    asked = [pass_named(name, names) for name in passes] or ([] if added else names)
    found: list[Effect] = []
    with Programs.measured(subject, limit_s=limit_s, course=course) as programs:
        search = _Effects(programs, measure=measure)
        made = itertools.chain(
            (search.of(name, alone=alone) for name in asked),
            (search.of_addition(name, variant, alone=alone) for name, variant in added.items()),
        )
        for effect in made:
            found.append(effect)
            if observe is not None:
                observe(effect)
    return tuple(found)


def known_passes(training: bool) -> list[str]:
    """Names of the standard recipe's passes for a situation, in their order."""
    from daceml.transformations.standard import standard_recipe

    recipe = standard_recipe().when("training" if training else "inference")
    return list(dict.fromkeys(step.name for step in recipe))


def pass_named(text: str, names: Sequence[str]) -> str:
    """The pass of a name, also of one such as SubgraphFusion.

    Raises:
        ExplorationError: there is none.
    """
    same = [name for name in names if name == text or _stems(name) == _stems(text)]
    if not same:
        closest = max(names, key=lambda name: _likeness(text, name))
        raise ExplorationError(
            f"the standard recipe has no pass {text!r}",
            why="it has " + ", ".join(names),
            fix=f"did you mean {closest!r}?" if _likeness(text, closest) > 0.6 else "name one of them",
        )
    return same[0]


def _stems(name: str) -> frozenset[str]:
    """SubgraphFusion and fuse_subgraphs are the same words in another order and form."""
    words = re.findall(r"[A-Z]?[a-z]+", name)
    return frozenset(re.sub("(ement|ion|ing|ed|ies|es|s|e|y)$", "", word.lower()) for word in words)


def _likeness(text: str, name: str) -> float:
    """From 0 to 1: how well each word of a text is found in a name, wherever it stands there."""
    words = _stems(name)
    best = [max(SequenceMatcher(None, stem, word).ratio() for word in words) for stem in _stems(text)]
    return sum(best) / max(len(best), len(words))


@dataclass
class _Effects:
    programs: Programs
    measure: bool = field(kw_only=True)

    def of(self, name: str, *, alone: bool) -> Effect:
        """Of a pass of the standard recipe."""
        without, only, none = Variant(without=(name,)), Variant(only=(name,)), Variant(only=())
        return self._told(name, without, (only, none) if alone else None, inverse=True)

    def of_addition(self, name: str, variant: Variant, *, alone: bool) -> Effect:
        """Of what the standard recipe does not do."""
        passes = passes_of(variant) if alone else None
        pair = None if passes is None else (replace(variant, only=passes), Variant(only=passes))
        return self._told(name, variant, pair, inverse=False)

    def _told(
        self, name: str, other: Variant, alone: tuple[Variant, Variant] | None, *, inverse: bool
    ) -> Effect:
        """Of what tells another variant from the standard one.

        Args:
            alone: with it and nothing else, and without anything; None where that is not asked for.
            inverse: whether it is the standard variant that has it.
        """
        why: list[str] = []

        def told(ratio: Callable[[], Ratio]) -> Ratio | None:
            try:
                return ratio()
            except Exception as error:  # whatever the others trip over without it
                why.append(first_line(error))
                return None

        among = told(lambda: self._ratio(other))
        by_itself = None if alone is None else told(lambda: self._over(*alone))
        measured = measured_alone = None
        if self.measure and among is not None:
            measured = told(lambda: self._measured(other))
        if self.measure and alone is not None and by_itself is not None:
            measured_alone = told(lambda: self._measured_over(*alone))
        if inverse:
            among, measured = (None if one is None else one.inverse() for one in (among, measured))
        return Effect(
            name=name,
            among=among,
            alone=by_itself,
            measured_among=measured,
            measured_alone=measured_alone,
            changes=among is None or not self._same(other, Variant()),
            why="; ".join(dict.fromkeys(why)),
        )

    def _ratio(self, variant: Variant) -> Ratio:
        """Of a variant's predicted time over the standard one's."""
        if self._same(variant, Variant()):
            return Ratio(value=1.0, low=1.0, high=1.0)
        found, standard = self.programs.predicted(variant), self.programs.predicted(Variant())
        return _ratio(found, standard.us)

    def _over(self, variant: Variant, base: Variant) -> Ratio:
        if self._same(variant, base):
            return Ratio(value=1.0, low=1.0, high=1.0)
        return _ratio(self.programs.predicted(variant), self.programs.predicted(base).us)

    def _measured(self, variant: Variant) -> Ratio:
        if self._same(variant, Variant()):
            return Ratio(value=1.0, low=1.0, high=1.0)
        times = self.programs.measure(variant)
        return Ratio(value=times.ratio, low=times.ratio_low, high=times.ratio_high)

    def _measured_over(self, variant: Variant, base: Variant) -> Ratio:
        """Both were measured beside the standard variant."""
        if self._same(variant, base):
            return Ratio(value=1.0, low=1.0, high=1.0)
        ours, theirs = self.programs.measure(variant), self.programs.measure(base)
        return Ratio(
            value=ours.ratio / theirs.ratio,
            low=ours.ratio_low / theirs.ratio_high,
            high=ours.ratio_high / theirs.ratio_low,
        )

    def _same(self, one: Variant, other: Variant) -> bool:
        return self.programs.lowered(one).identity == self.programs.lowered(other).identity


def _ratio(found: ProgramTime, over_us: float) -> Ratio:
    return Ratio(value=found.us / over_us, low=found.low_us / over_us, high=found.high_us / over_us)

"""Which variants there are: every change by itself, and then those that help together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from daceml.transformations.standard import standard_recipe
from daceml.tuning.recipe_changes import CHOICES, NO_RECOMPUTATION
from daceml.tuning.variant import Variant
from daceml.tuning.variant_recipes import choices_for

if TYPE_CHECKING:
    from daceml.transformations.recipe import Situation

_MOST_AT_ONCE = 5
MEMORY_SHARES = (0.9, 0.75, 0.6)


@dataclass(frozen=True, kw_only=True)
class Space:
    """What a model may be varied in.

    Attributes:
        training: whether there is a backward pass.
        freezable: whether weights may be promised not to change.
        precisions: element types to try besides that of the model.
        batches: numbers of samples of a call to try besides its own.
    """

    training: bool
    freezable: bool
    precisions: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()

    def singles(self) -> tuple[Variant, ...]:
        """The standard variant, and every change by itself; those that change values last."""
        found = [
            Variant(),
            Variant(unoptimised=True),
            *(Variant(depth=d) for d in ("operators", "loops", "layout")),
        ]
        found += self._choices("training" if self.training else "inference", Variant())
        if self.training:
            found += [Variant(memory_share=share) for share in MEMORY_SHARES]
        if self.freezable:
            frozen = Variant(freeze=True)
            found += [frozen, *self._choices("frozen", frozen)]
        passes = _passes("training" if self.training else "inference")
        found += [Variant(without=(name,)) for name in passes]
        if self.freezable:
            found += [Variant(without=(n,), freeze=True) for n in _passes("frozen") if n not in passes]
        found += [Variant(precision=one) for one in self.precisions]
        found += [Variant(samples=one) for one in self.batches]
        return tuple(found)

    def combined(self, different: Sequence[Variant]) -> Iterator[Variant]:
        """Two changes at once, then more, up to five, the most promising first.

        Args:
            different: variants whose programs differ, in the order of what they promise.
        """
        known = set(different)
        for count in range(2, _MOST_AT_ONCE + 1):
            for members in combinations(different, count):
                one = self._together(members)
                if one is not None and one not in known:
                    known.add(one)
                    yield one

    def _choices(self, situation: Situation, of: Variant) -> list[Variant]:
        names = [choice.name for choice in choices_for(situation)]
        if self.training:
            names.append(NO_RECOMPUTATION)
        return [replace(of, choices=(name,)) for name in names]

    def _together(self, members: Sequence[Variant]) -> Variant | None:
        """All changes of some variants; None where two say something of the same."""
        if any(one.memory_share is not None for one in members):
            return None
        whole = [one for one in members if one.unoptimised or one.depth != "all"]  # they say which passes run
        left_out = {name for one in members for name in one.without}
        names = [name for one in members for name in one.choices]
        precisions = {one.precision for one in members if one.precision}
        batches = {one.samples for one in members if one.samples is not None}
        if len(set(names)) < len(names) or len(precisions) > 1 or len(batches) > 1 or _exclude(names):
            return None
        frozen = any(one.freeze for one in members)
        if len(whole) > 1 or (whole and (names or left_out or (frozen and whole[0].unoptimised))):
            return None
        return Variant(
            choices=tuple(choice.name for choice in CHOICES if choice.name in names),
            depth=whole[0].depth if whole else "all",
            unoptimised=bool(whole) and whole[0].unoptimised,
            without=tuple(name for name in _passes() if name in left_out),
            freeze=frozen,
            precision=next(iter(precisions), ""),
            samples=next(iter(batches), None),
        )


def _passes(situation: Situation | None = None) -> tuple[str, ...]:
    """Of the standard recipe, or of what it does in a situation, each once."""
    recipe = standard_recipe() if situation is None else standard_recipe().when(situation)
    return tuple(dict.fromkeys(step.name for step in recipe))


_EITHER_OR = (
    {"no columns", "columns everywhere"},
    {"threads from 65,536 iterations", "threads from 4,096 iterations"},
    {"loops apart", "small nests"},
)


def _exclude(names: Sequence[str]) -> bool:
    return any(len(pair.intersection(names)) > 1 for pair in _EITHER_OR)

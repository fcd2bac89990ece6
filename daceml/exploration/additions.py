"""What may be added to the standard recipe, by the names that commands take."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from daceml.errors import ExplorationError
from daceml.exploration.pass_names import askable_passes
from daceml.tuning.call_precision import TORCH_TYPES
from daceml.tuning.recipe_changes import CHOICES, NO_RECOMPUTATION
from daceml.tuning.variant import Variant
from daceml.tuning.variant_recipes import choices_for

_MEMORY = re.compile(r"memory[ =-]?(\d{1,2})\s*%")


def additions(training: bool) -> Mapping[str, Variant]:
    """Name -> the standard recipe with one thing more.

    Args:
        training: whether a step is a forward and a backward pass.
    """
    found = {name: Variant(precision=precision) for name, precision in TORCH_TYPES.items()}
    if training:
        found[_slug(NO_RECOMPUTATION)] = Variant(choices=(NO_RECOMPUTATION,))
    else:
        found["freeze"] = Variant(freeze=True)
    choices = choices_for("training" if training else "inference")
    return found | {_slug(choice.name): Variant(choices=(choice.name,)) for choice in choices}


def addition_named(text: str, training: bool) -> Variant:
    """The standard recipe with what a text names: bf16, freeze, products-in-loops, memory=75%.

    Raises:
        ExplorationError: it names nothing.
    """
    share = _MEMORY.fullmatch(text)
    if share and training and int(share[1]) > 0:
        return Variant(memory_share=int(share[1]) / 100)
    known = additions(training)
    if (name := _slug(text)) in known:
        return known[name]
    if text in askable_passes(training):
        raise ExplorationError(
            f"{text} is in the standard recipe",
            why="only what is not there can be added to it",
            fix=f"ask what it is worth: --without {text}",
        )
    close = difflib.get_close_matches(name, known, n=1)
    names = [*known, *(["memory=75%"] if training else [])]
    raise ExplorationError(
        f"{text!r} is nothing that can be added",
        why=f"in {'training' if training else 'inference'} there are {', '.join(names)}",
        fix=f"did you mean {close[0]!r}?" if close else "name one of them",
    )


def passes_of(variant: Variant) -> tuple[str, ...] | None:
    """Passes of the standard recipe that an addition needs to be told apart by itself: those that it gives
    other options, or runs where they did not.

    Returns:
        None where it only leaves passes out, which says nothing where there are none.
    """
    found: list[str] = []
    says = variant.choices == () or NO_RECOMPUTATION in variant.choices
    for choice in CHOICES:
        if choice.name in variant.choices:
            found += [*choice.options, *choice.everywhere]
            says = says or bool(choice.options or choice.everywhere or choice.prefer)
    return tuple(dict.fromkeys(found)) if says else None


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")

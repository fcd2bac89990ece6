"""The passes of the standard recipe that a user may name, and how a name is found."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from daceml.errors import ExplorationError
from daceml.transformations.standard import standard_recipe

STAGES = frozenset({"Lowering", "MemoryPlan"})
"""What `explain` shows besides, and no recipe has: every program is lowered and laid out."""

_CALLS = {"training": "training steps", "inference": "inference", "frozen": "inference with frozen weights"}


def known_passes(training: bool) -> list[str]:
    """Names of the standard recipe's passes for a situation, in their order."""
    recipe = standard_recipe().when("training" if training else "inference")
    return list(dict.fromkeys(step.name for step in recipe))


def frozen_passes() -> list[str]:
    """Names of those passes that run only where weights do not change any more, in their order."""
    inference = known_passes(training=False)
    names = dict.fromkeys(step.name for step in standard_recipe().when("frozen"))
    return [name for name in names if name not in inference]


def askable_passes(training: bool) -> list[str]:
    """Those of a situation, and in inference those of frozen weights."""
    return known_passes(training) + ([] if training else frozen_passes())


def pass_named(text: str, names: Sequence[str]) -> str:
    """The pass of a name that a user typed.

    Raises:
        ExplorationError: there is none, and the nearest is suggested; or it runs for other calls only.
    """
    if text in names:
        return text
    if text in STAGES:
        raise ExplorationError(
            f"{text} is no pass that could be left out", why="no program is without it", fix="name a pass"
        )
    only = {situation for step in standard_recipe() if step.name == text for situation in step.only}
    if only:
        raise ExplorationError(
            f"pass {text!r} does not run for this call",
            why=f"it runs only in {' and in '.join(_CALLS[situation] for situation in sorted(only))}",
            fix="ask for a training step (--train)" if only == {"training"} else "ask without --train",
        )
    closest = difflib.get_close_matches(text, names, n=1)
    raise ExplorationError(
        f"the standard recipe has no pass {text!r}",
        why="it has " + ", ".join(names),
        fix=f"did you mean {closest[0]!r}?" if closest else "name one of them",
    )

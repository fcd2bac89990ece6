"""Store or recompute: which arrays of the forward pass the backward pass finds in memory.

Every array that the backward pass reads is stored, or the step that writes it runs again there, from arrays
for which the same holds. An integer program chooses. Costs are bytes of traffic, and arithmetic in bytes that
take as long.

Source: Rausch et al., DaCeML (ICS 2022), section 4.2, for the choice between forwarding and recomputing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from daceml.autodiff.checkpointing.checkpoint_costs import Choices, Extent
from daceml.autodiff.checkpointing.cloning import recompute_in_backward
from daceml.autodiff.checkpointing.forward_steps import ForwardSteps, is_static
from daceml.autodiff.checkpointing.integer_program import Storage, choose_storage
from daceml.autodiff.checkpointing.normalizations import lower_normalizations
from daceml.errors import MemoryBudgetError

if TYPE_CHECKING:
    from daceml.sdfg.network import Network

Recompute = Literal["none", "cheap", "budget"]

_CHEAP_SHARE = 0.03
"""Of a training step: the time that recomputing may take beyond what it saves."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What became of one array that the backward pass reads.

    Attributes:
        bytes: its size; symbols at their example size.
        stored: whether the forward pass keeps it; else it is computed again.
        reason: why, in words.
    """

    array: str
    bytes: int
    stored: bool
    reason: str


def plan_recomputation(
    network: Network, mode: Recompute, *, limit_bytes: int | None = None, narrowable: bool = False
) -> tuple[Decision, ...]:
    """Choose what is stored, and let the backward half compute the rest again. Mutates the network.

    Args:
        network: with gradients, before it is cut in two.
        mode: "none" stores everything, an array once for all its shapes; "cheap" runs elementwise steps again
            where that costs nothing, then those that spare the most memory for 3 % of the step; "budget"
            keeps `limit_bytes`, or comes as near as it can.
        narrowable: the backward pass of some of the results alone has to find what it needs among what is
            stored for all of them: "cheap" chooses array by array then.
        limit_bytes: for "budget": of what is stored and of what the backward pass has made, at any time;
            None for no limit, which is what "cheap" stores.
    Returns:
        one record for each array that is stored or computed again.
    Raises:
        MemoryBudgetError: sizes are symbolic, so that no budget can be kept.
    """
    balanced = mode == "budget" or (mode == "cheap" and not narrowable)
    if balanced:
        lower_normalizations(network)
    facts = ForwardSteps(network)
    if mode == "budget" and not is_static(network, facts.producers):
        raise MemoryBudgetError(
            "a budget in bytes needs sizes that are known",
            why="the program has symbolic sizes",
            fix="compile for fixed sizes, or use recompute='cheap'",
        )
    choices = Choices(facts, extent=_extent(mode, limit_bytes))
    if mode == "none":
        again = {step.node: (0,) for step in choices.steps}
        made = {a for step in choices.steps for a in step.writes}
        choice = Storage(stored=frozenset(choices.arrays) - made, again=again)
    else:
        spare = _CHEAP_SHARE * choices.step_cost if balanced and limit_bytes is None else 0.0
        choice = choose_storage(choices, limit_bytes if mode == "budget" else None, spare=spare)
    decisions = tuple(_decisions(choices, choice))
    recompute_in_backward(choices, choice)
    return decisions


def _extent(mode: Recompute, limit_bytes: int | None) -> Extent:
    if mode == "none":
        return "views"
    return "all" if mode == "budget" and limit_bytes is not None else "elementwise"


def _decisions(choices: Choices, choice: Storage) -> Iterator[Decision]:
    """One record for each array that is read, in order of size."""
    running = [choices.facts.step(node) for node in choice.again]
    used = {*choices.facts.needed, *(a for step in running for a in step.reads)}
    for array in sorted(used.intersection(choices.arrays), key=lambda a: (-choices.facts.array_bytes(a), a)):
        if choices.producer[array].views:
            continue  # the same memory as what it is made of
        stored = array in choice.stored
        yield Decision(
            array=array,
            bytes=choices.facts.array_bytes(array),
            stored=stored,
            reason=_why_stored(choices, array) if stored else _why_again(choices, choice, array),
        )


def _why_again(choices: Choices, choice: Storage, array: str) -> str:
    step = choices.producer[array]
    times = len(choice.again.get(step.node, ()))
    often = "again" if times == 1 else f"{times} times again"
    inside = step.elementwise and choices.facts.fusing_readers(array, choices.is_behind)
    return f"{step.label} runs {often}{' inside its readers' if inside else ''}, from {', '.join(step.reads)}"


def _why_stored(choices: Choices, array: str) -> str:
    step = choices.producer[array]
    if (refusal := choices.refusal(step)) is not None:
        return refusal
    kept, made = choices.storing_cost(array), choices.running_cost(step)
    if kept <= made:
        return f"storing it moves {kept / 1e6:.3g} MB, {step.label} again costs like {made / 1e6:.3g}"
    return f"to run {step.label} again, something larger would have to be stored or computed"

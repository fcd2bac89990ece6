"""A training step that keeps a budget of memory: plan, lower, count, and plan again with less.

What is stored is chosen before operators are lowered; how much workspace both programs need is known after.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from daceml.codegen.planning.plan import make_plan
from daceml.codegen.planning.step_memory import array_bytes, live_bytes
from daceml.errors import MemoryBudgetError
from daceml.onnx_ops.external import external_call

if TYPE_CHECKING:
    from daceml.codegen.planning.plan import Plan
    from daceml.compiler.stages.lowered_network import Optimised
    from daceml.runtime.records.gradients import GradientRecord
    from daceml.sdfg.network import Network

    Made = tuple[list[Optimised], GradientRecord]

_ATTEMPTS = 6

log = logging.getLogger(__name__)


def within_budget(network: Network, budget_bytes: int, make: Callable[[Network, int | None], Made]) -> Made:
    """Forward and backward pass that keep a budget at their peak.

    Args:
        network: of ONNX nodes; not changed.
        make: differentiates and lowers a network; the number is the bytes that what is stored and what the
            backward pass makes may take.
    Raises:
        MemoryBudgetError: a step that stores as little as possible takes more than the budget.
    """
    allowed: int | None = None
    without_limit = 0
    for attempt in range(_ATTEMPTS):
        if attempt == _ATTEMPTS - 1:
            allowed = 0
        made = make(copy.deepcopy(network), allowed)
        peak = peak_bytes(*made)
        log.info("a training step takes %d bytes at its peak; the budget is %d", peak, budget_bytes)
        if peak <= budget_bytes:
            return made
        if allowed == 0:
            raise _refusal(budget_bytes, min(without_limit, peak))
        if allowed is None:
            allowed, without_limit = budget_bytes - held_bytes(*made), peak
        else:
            allowed -= peak - budget_bytes
        allowed = max(allowed, 0)
    raise AssertionError("the last attempt allows nothing")


def _refusal(budget_bytes: int, least: int) -> MemoryBudgetError:
    return MemoryBudgetError(
        "the budget for memory cannot be kept",
        why=f"memory_budget_bytes is {budget_bytes}; the least that was found possible is {least}",
        fix=f"give a budget of {least} bytes or more, or make the batch smaller",
    )


def peak_bytes(made: list[Optimised], record: GradientRecord, plans: Sequence[Plan] | None = None) -> int:
    """Bytes of a training step at its peak, with those of parameters, inputs, results and their cotangents.

    Vendor kernels' own temporaries count as their calls state them.

    Args:
        plans: of forward and backward, where they are made already.
    """
    forward, backward = (one.network for one in made)
    given = record.saved_of(backward.inputs)
    ahead, behind = plans or (
        make_plan(forward, external_call, given=()),
        make_plan(backward, external_call, given=given),
    )
    held = array_bytes(forward, (*forward.inputs, *forward.weights))
    return max(
        held + max(live_bytes(ahead), default=0),
        held_bytes(made, record) + max(live_bytes(behind, given), default=0),
    )


def held_bytes(made: list[Optimised], record: GradientRecord) -> int:
    """Bytes of what the caller holds during the backward pass."""
    forward, backward = (one.network for one in made)
    ahead = array_bytes(forward, (*forward.inputs, *forward.weights, *forward.outputs[: record.results]))
    return ahead + array_bytes(backward, backward.inputs[: len(record.cotangents)])

"""A training step that keeps a budget of memory: plan, lower, count, and plan again with less.

What is stored is chosen before operators are lowered; how much workspace both programs need is known after.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from daceml.errors import MemoryBudgetError

if TYPE_CHECKING:
    from daceml.frontend.gradient_record import GradientRecord
    from daceml.frontend.pipeline import Optimised
    from daceml.sdfg.network import Network

    Made = tuple[list[Optimised], GradientRecord]

_ATTEMPTS = 5

log = logging.getLogger(__name__)


def within_budget(network: Network, budget_bytes: int, make: Callable[[Network, int | None], Made]) -> Made:
    """Forward and backward pass that keep a budget at their peak.

    Args:
        network: of ONNX nodes; not changed.
        make: differentiates and lowers a network; the number is the bytes to store and compute again.
    Raises:
        MemoryBudgetError: the least that was found is more than the budget.
    """
    allowed: int | None = None
    peaks: list[int] = []
    for _ in range(_ATTEMPTS):
        made = make(copy.deepcopy(network), allowed)
        peaks.append(peak_bytes(*made))
        log.info("a training step takes %d bytes at its peak; the budget is %d", peaks[-1], budget_bytes)
        if peaks[-1] <= budget_bytes:
            return made
        if allowed == 0 or (len(peaks) > 2 and peaks[-1] > peaks[-2]):
            break
        if allowed is None:
            allowed = sum(r.bytes for r in made[1].storage if r.stored)
        allowed = max(allowed - (peaks[-1] - budget_bytes), 0)
    raise _refusal(budget_bytes, min(peaks))


def _refusal(budget_bytes: int, least: int) -> MemoryBudgetError:
    return MemoryBudgetError(
        "the budget for memory cannot be kept",
        why=f"memory_budget_bytes is {budget_bytes}; the least that was found possible is {least}",
        fix=f"give a budget of {least} bytes or more, or make the batch smaller",
    )


def peak_bytes(made: list[Optimised], record: GradientRecord) -> int:
    """An upper bound of the bytes of a training step at its peak.

    Parameters, inputs, results and what is stored live throughout; gradients and both workspaces, which
    programs keep from call to call, are counted whole. What vendor kernels allocate inside is theirs.
    """
    from daceml.onnx_ops.external import external_call
    from daceml.runtime.plan import make_plan, size_bytes
    from daceml.runtime.temporary import fresh_bytes, workspace_bytes

    forward, backward = (one.network for one in made)
    plans = [make_plan(network, external_call) for network in (forward, backward)]
    arrays = forward.sdfg.arrays
    held = sum(size_bytes(arrays[a]) for a in dict.fromkeys((*forward.inputs, *forward.weights)))
    results = sum(size_bytes(arrays[a]) for a in dict.fromkeys(forward.outputs))
    made_behind = dict.fromkeys((*backward.inputs[: len(record.cotangents)], *backward.outputs))
    behind = sum(size_bytes(backward.sdfg.arrays[a]) for a in made_behind)
    at_first = held + results + workspace_bytes(plans[0])
    return at_first + max(fresh_bytes(plans[0]), workspace_bytes(plans[1]) + behind + fresh_bytes(plans[1]))

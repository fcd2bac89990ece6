"""How much memory a program takes besides its inputs, weights and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from daceml.runtime.plan import Plan, Storage, size_bytes
from daceml.sdfg.external import AtenCall

if TYPE_CHECKING:
    from daceml.sdfg.sizes import Size


def workspace_bytes(plan: Plan) -> int:
    """Bytes of the workspace, which a program keeps from call to call.

    Args:
        plan: of a network whose sizes are known.
    """
    return _known(plan.layout.size_bytes)


def fresh_bytes(plan: Plan) -> int:
    """Bytes that vendor kernels hand over, at the step where most are alive."""
    alive = most = 0
    live: dict[str, int] = {}
    for index, step in enumerate(plan.steps):
        action = step.action
        passing = 0
        for array in action.handed_over() if isinstance(action, AtenCall) else ():
            name = plan.roots[array]
            amount = _known(size_bytes(plan.network.sdfg.arrays[name]))
            if plan.locations[name].storage is Storage.FRESH:
                live[name] = amount
                alive += amount
            else:
                passing += amount  # copied to where it belongs
        most = max(most, alive + passing)
        for name in plan.releases.get(index, ()):
            alive -= live.pop(name, 0)
    return most


def _known(amount: Size) -> int:
    if not isinstance(amount, int):
        raise TypeError(f"{amount} is no number")
    return amount

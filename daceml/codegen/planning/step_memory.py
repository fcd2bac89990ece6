"""How much memory is alive while a program runs, step by step."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from daceml.codegen.planning.plan import Plan
from daceml.codegen.planning.steps import Storage, handed_over
from daceml.sdfg.external import AtenCall
from daceml.sdfg.sizes import size_bytes

if TYPE_CHECKING:
    from daceml.sdfg.network import Network
    from daceml.sdfg.sizes import Size


def live_bytes(plan: Plan, given: Collection[str] = ()) -> list[int]:
    """Bytes alive during each step: workspace, fresh arrays, outputs, and inputs that only the call holds.

    Vendor kernels' own temporaries count as their calls state them.

    Args:
        plan: of a network whose sizes are known.
        given: inputs that only the call holds.
    """
    arrays = plan.network.sdfg.arrays

    def amount(name: str) -> int:
        return _known(size_bytes(arrays[name]))

    alive = _known(plan.layout.size_bytes) + sum(map(amount, given))
    found: list[int] = []
    for index, step in enumerate(plan.steps):
        over = [a for a in handed_over(step) if _makes_itself(plan, plan.roots[a])]
        made = {*plan.makes.get(index, ()), *(plan.roots[a] for a in over)}
        passing = sum(amount(a) for a in handed_over(step) if a not in over)  # copied to where it belongs
        copied = getattr(getattr(step.action, "target", None), "storage", None) is Storage.OUTPUT
        alive += sum(map(amount, made)) + (amount(plan.roots[step.reads[0]]) if copied else 0)
        inside = _known(step.action.temporary_bytes) if isinstance(step.action, AtenCall) else 0
        found.append(alive + passing + inside)
        for name in plan.releases.get(index, ()):
            if plan.locations[name].storage is Storage.FRESH or name in given:
                alive -= amount(name)
    return found


def array_bytes(network: Network, arrays: Iterable[str]) -> int:
    """Bytes of arrays whose sizes are known, each counted once."""
    return sum(_known(size_bytes(network.sdfg.arrays[a])) for a in dict.fromkeys(arrays))


def _makes_itself(plan: Plan, name: str) -> bool:
    return plan.locations[name].storage in (Storage.FRESH, Storage.OUTPUT)


def _known(amount: Size) -> int:
    if not isinstance(amount, int):
        raise TypeError(f"{amount} is not a number")
    return amount

"""Random numbers of a program come from torch's own generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch._ops import OpOverload

from daceml.frontend.capture.exportable import RunsEagerlyError

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def draw_from_torchs_generator(program: ExportedProgram) -> None:
    """Let calls with `generator=None` be calls of the overload without one, as they draw the same numbers.

    Raises:
        RunsEagerlyError: a call is given another generator.
    """
    for part in program.graph_module.modules():
        for node in getattr(part, "graph", program.graph).nodes:
            if node.kwargs.get("generator") is not None:
                raise RunsEagerlyError("forward passes a random generator")
            if isinstance(node.target, OpOverload) and "generator" in str(node.target).rpartition(".")[2]:
                node.target = _without_generator(node.target)
                node.kwargs = {name: value for name, value in node.kwargs.items() if name != "generator"}


def _without_generator(target: OpOverload) -> OpOverload:
    """The overload with the same arguments but for the generator."""
    packet = target.overloadpacket
    others = (getattr(packet, name) for name in packet.overloads() if "generator" not in name)
    return next(other for other in others if _arguments(other) == _arguments(target))


def _arguments(overload: OpOverload) -> list[tuple[str, str]]:
    formals = overload._schema.arguments  # pyright: ignore[reportPrivateUsage]
    return [(formal.name, str(formal.type)) for formal in formals if formal.name != "generator"]

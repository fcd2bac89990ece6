"""Random numbers of a program come from torch's own generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch._ops import OpOverload

from daceml.frontend.capture.exportable import RunsEagerlyError

if TYPE_CHECKING:
    from torch.export import ExportedProgram


def draw_from_torchs_generator(program: ExportedProgram) -> None:
    """Replace overloads that take a generator, where it is None, by those that take none.

    Raises:
        RunsEagerlyError: a call is given another generator.
    """
    for part in program.graph_module.modules():
        for node in getattr(part, "graph", program.graph).nodes:
            if node.kwargs.get("generator") is not None:
                raise RunsEagerlyError("forward passes a random generator")
            if isinstance(node.target, OpOverload) and (plain := _without_generator(node.target)) is not None:
                node.target = plain
                node.kwargs = {name: value for name, value in node.kwargs.items() if name != "generator"}


def _without_generator(target: OpOverload) -> OpOverload | None:
    """The overload that takes the same arguments and no generator; None if this one takes none either."""
    if "generator" not in str(target).rpartition(".")[2]:
        return None
    packet = target.overloadpacket
    others = (getattr(packet, name) for name in packet.overloads() if "generator" not in name)
    return next((other for other in others if _arguments(other) == _arguments(target)), None)


def _arguments(overload: OpOverload) -> list[tuple[str, str]]:
    formals = overload._schema.arguments  # pyright: ignore[reportPrivateUsage]
    return [(formal.name, str(formal.type)) for formal in formals if formal.name != "generator"]

"""Our own fused kernels as operations: known by their code and launch, whatever program they are part of.

A kernel is named `k_` and a digest of its canonical text, in which names and offsets do not occur:
equal loops of several programs are one kernel, and share their measurements.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from daceml.errors import EntryError
from daceml.operations.database.records import Attribute, Direction, Operand, Operation

OPERATOR = "kernel"
_WRITTEN = re.compile(
    r"(?P<function>\w+) source=(?P<source>[0-9a-f]+) grid=(?P<grid>\d+,\d+,\d+) block=(?P<block>\d+,\d+,\d+)"
    r" shared=(?P<shared>\d+)"
)


@dataclass(frozen=True, kw_only=True)
class KernelIdentity:
    """A kernel of ours and how it is launched.

    Attributes:
        function: by which profilers know it.
        source: digest of its canonical text, in hexadecimal.
        grid: blocks along x, y, z.
        block: threads of each block along x, y, z.
        shared_bytes: of each block, beside what the kernel itself declares.
    """

    function: str
    source: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0

    @property
    def text(self) -> str:
        """As `Operation.kernel` has it: the code first, then the launch."""
        grid, block = (",".join(map(str, extents)) for extents in (self.grid, self.block))
        return f"{self.function} source={self.source} grid={grid} block={block} shared={self.shared_bytes}"

    @classmethod
    def of(cls, text: str) -> KernelIdentity:
        """Of the text in `Operation.kernel`.

        Raises:
            EntryError: it is none that `text` gives.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise EntryError(
                "this is no kernel of daceml's",
                where=repr(text[:80]),
                fix="write it as FUNCTION source=DIGEST grid=X,Y,Z block=X,Y,Z shared=BYTES",
            )
        grid, block = ([int(extent) for extent in found[name].split(",")] for name in ("grid", "block"))
        return cls(
            function=found["function"],
            source=found["source"],
            grid=(grid[0], grid[1], grid[2]),
            block=(block[0], block[1], block[2]),
            shared_bytes=int(found["shared"]),
        )


def kernel_operation(
    step: Mapping[str, Any],
    operands: Sequence[Operand],
    *,
    grid: Sequence[int] | None = None,
    block: Sequence[int] | None = None,
    attributes: Mapping[str, Attribute] | None = None,
    direction: Direction = "forward",
) -> Operation:
    """The operation that a step of a compiled program is, of its record in `manifest.json`.

    Args:
        step: a step's record as plain values, with `kernel` and `launch`.
        operands: what the kernel reads; the record does not say.
        grid, block: as a trace or a measurement saw them; else those of the record, which are numbers only
            where the program has no symbolic sizes.
    Raises:
        EntryError: the step launches no kernel for a device, or how it does depends on sizes that nobody
            gave: expressions in a file are not evaluated.
    """
    launch: Mapping[str, Any] = step.get("launch") or {}
    kernel, function = step.get("kernel"), launch.get("function")
    if not isinstance(kernel, str) or not kernel or not isinstance(function, str):
        raise EntryError(
            "this step launches no kernel for a device",
            where=str(step.get("label", ""))[:80],
            fix="take a step of a program that was compiled for one: its record has `kernel` and `launch`",
        )
    identity = KernelIdentity(
        function=function,
        source=kernel.removeprefix("k_"),
        grid=_extents("grid", function, launch.get("grid") if grid is None else grid),
        block=_extents("block", function, launch.get("block") if block is None else block),
        shared_bytes=int(launch.get("shared_bytes", 0)),
    )
    return Operation(
        operator=OPERATOR,
        operands=tuple(operands),
        attributes=dict(attributes or {}),
        direction=direction,
        kernel=KernelIdentity.of(identity.text).text,
    )


def _extents(what: str, function: str, extents: Any) -> tuple[int, int, int]:
    values = list(extents) if isinstance(extents, Sequence) else []
    if len(values) != 3 or not all(type(extent) is int and extent > 0 for extent in values):
        raise EntryError(
            f"the {what} of this kernel is not known",
            where=function,
            why=f"the record has {extents!r}, not three numbers from 1 on",
            fix=f"pass {what}=(X, Y, Z), as a trace has it",
        )
    return values[0], values[1], values[2]

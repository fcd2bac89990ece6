"""One thing to measure on a device, as one process tells it to another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.peers import Mode


@dataclass(frozen=True, kw_only=True)
class Case:
    """A case of a shard.

    Attributes:
        kind: of `measures.MEASURES`, which function measures it.
        name: of a network, a block or a check.
        mode: `inference` or `training`; empty where there is no choice.
        precision: of `PRECISIONS`; empty for checks.
        emulated: on the processor, with kernels in emulation and at small sizes.
        quick: fewer rounds.
        question: of `measures.QUESTIONS`, what is asked of the case instead of its measurement.
    """

    kind: str
    name: str
    mode: Mode | str = ""
    precision: str = "fp32"
    emulated: bool = False
    quick: bool = False
    question: str = ""

    @property
    def label(self) -> str:
        return ", ".join(part for part in (self.name, self.mode, self.precision, self.question) if part)

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells it from every other case."""
        return (self.kind, self.name, self.mode, self.precision, self.emulated, self.quick, self.question)

"""What the assembler says of a kernel."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class KernelFacts:
    """What the assembler says of a kernel.

    Attributes:
        registers: of each thread.
        shared_bytes: of each block, without what a launch adds.
        stack_bytes: of each thread, for arrays that are indexed by what is not known.
        spill_bytes: stored and loaded by each thread because registers did not suffice.
    """

    registers: int
    shared_bytes: int = 0
    stack_bytes: int = 0
    spill_bytes: int = 0

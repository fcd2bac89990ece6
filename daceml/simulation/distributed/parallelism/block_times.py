"""How long blocks of operators take a device, and the host that launches them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from daceml.errors import EstimationError
from daceml.operations.database.records import Operation
from daceml.simulation.distributed.parallelism.layer_work import Block


class OperatorTimes(Protocol):
    """Who knows how long an operator takes: a table, a model, a roofline."""

    def __call__(self, operation: Operation, /) -> float | None:
        """Microseconds on the device; None where it does not know."""
        ...


@dataclass(frozen=True, kw_only=True)
class HostTimes:
    """What launching takes a thread of the host; nothing, where the host is never late.

    Attributes:
        call_us: of one operator, with the interpreter's part.
        latency_us: from the start of a launch to that of its kernel.
    """

    call_us: float = 0.0
    latency_us: float = 0.0


@dataclass(frozen=True, kw_only=True)
class BlockTimes:
    """Asks an estimator for each operator once."""

    operators: OperatorTimes
    known: dict[tuple[object, ...], float] = field(default_factory=dict[tuple[object, ...], float])

    def operator_us(self, operation: Operation) -> float:
        """Of one operator.

        Raises:
            EstimationError: nobody knows it.
        """
        key = (operation.operator, operation.operands, tuple(operation.attributes.items()))
        if key not in self.known:
            duration_us = self.operators(operation)
            if duration_us is None:
                shapes = ", ".join(str(list(one.shape)) for one in operation.operands)
                raise EstimationError(
                    f"the duration of {operation.operator} is unknown",
                    where=f"{shapes} {operation.operands[0].dtype}",
                    fix="give an estimator that knows it, or falls back on a roofline",
                )
            self.known[key] = duration_us
        return self.known[key]

    def block_us(self, block: Block) -> float:
        """Of all operators of a block, one after the other."""
        return sum(map(self.operator_us, block.operations))

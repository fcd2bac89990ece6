"""What a traced implementation wants done: computations and intermediates, before anything is changed."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daceml.sdfg.builder import Builder, Computation, parameters
from daceml.sdfg.network import IndexCheck
from daceml.sdfg.recurrence import Recurrence, emit_recurrence
from daceml.sdfg.scalar import DType, Index, Scalar
from daceml.sdfg.scatter import Scatter, emit_scatter

if TYPE_CHECKING:
    import dace


class Refused(Exception):  # noqa: N818  (an answer, not an error)
    """An implementation found while it was traced that it cannot do this node; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Intermediate:
    """An array that an implementation needs between two computations."""

    name: str
    shape: tuple[Index, ...]
    dtype: DType


class Trace:
    """Records computations; nothing is written into an SDFG before `commit`.

    Args:
        label: name of the operator, for maps and intermediates.
        taken: array names in use.
        known_sizes: sizes of the node's outputs; of two symbols that meet in a broadcast one must be among
            them.
    """

    def __init__(self, label: str, taken: Collection[str] = (), known_sizes: Sequence[Index] = ()) -> None:
        self.label, self.taken = label, taken
        self.stem = label.lower()
        self.known_sizes: frozenset[str] = frozenset(map(str, known_sizes))
        self.computations: list[Computation | Scatter | Recurrence] = []
        self.intermediates: list[Intermediate] = []
        self.checks: list[IndexCheck] = []
        self._names: set[str] = set()

    def compute(
        self, target: str, index: Sequence[Index], extents: Sequence[Index], value: Scalar, label: str = ""
    ) -> None:
        """Record `target[index] = value` over a box of `i0, i1, …`."""
        self.computations.append(
            Computation(
                label=label or self.label,
                target=target,
                index=tuple(index) or (0,),
                params=parameters(len(extents)),
                extents=tuple(extents),
                value=value,
            )
        )

    def intermediate(self, what: str, shape: Sequence[Index], dtype: DType) -> Intermediate:
        """A new array, named after the operator, its output and what it holds; rank 0 is shape (1,)."""
        number = 0
        while (name := f"{self.stem}_{what}_{number}") in self.taken or name in self._names:
            number += 1
        self._names.add(name)
        array = Intermediate(name=name, shape=tuple(shape) or (1,), dtype=dtype)
        self.intermediates.append(array)
        return array

    def commit(self, builder: Builder) -> None:
        """Write everything into the builder's state."""
        sdfg: dace.SDFG = builder.sdfg
        for array in self.intermediates:
            sdfg.add_transient(array.name, array.shape, array.dtype)
        for computation in self.computations:
            match computation:
                case Scatter():
                    emit_scatter(builder, computation)
                case Recurrence():
                    emit_recurrence(builder, computation)
                case Computation():
                    builder.emit(computation)


_active: list[Trace] = []


@contextmanager
def tracing(trace: Trace) -> Generator[Trace]:
    """Make a trace the one that new tensors belong to."""
    _active.append(trace)
    try:
        yield trace
    finally:
        _active.pop()


def active_trace() -> Trace:
    """The trace of the implementation that is running."""
    if not _active:
        raise RuntimeError("tensor expressions exist only while an implementation is traced")
    return _active[-1]

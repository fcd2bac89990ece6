"""A call of one function of `daceml/aten.h`, as data that a driver can be written from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from daceml.sdfg.sizes import Size


@dataclass(frozen=True, kw_only=True)
class TensorView:
    """A torch tensor over an array's memory, from its first element: any sizes and strides, in elements."""

    array: str
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]


Argument = TensorView | tuple[int, ...] | float | int | bool | None


@dataclass(frozen=True, kw_only=True)
class AtenCall:
    """One call.

    Attributes:
        function: name in namespace `daceml::aten`.
        arguments: in order, after the call record (and the fresh result, where there is one); a tuple of ints is
            passed as a pointer to them, None as a null tensor.
        writes: the array that the call fills.
        fresh: whether the function allocates the result itself and hands its buffer over.
        flops: floating-point operations of the call.
    """

    function: str
    arguments: tuple[Argument, ...] = field(default=())
    writes: str
    fresh: bool = False
    flops: Size = 0

    def reads(self) -> tuple[str, ...]:
        """Arrays that the call reads."""
        arrays = (a.array for a in self.arguments if isinstance(a, TensorView))
        return tuple(dict.fromkeys(a for a in arrays if a != self.writes))

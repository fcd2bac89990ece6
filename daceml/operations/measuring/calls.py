"""One call of an ATen operator without its values: what another process can repeat with random ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from daceml.errors import MeasurementError
from daceml.operations.database.layout import layout_of
from daceml.operations.database.records import Attribute, Direction, Operand, Operation


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor without its values.

    Attributes:
        strides: in elements.
        dtype: as torch calls it, without `torch.`.
        low, high: range of its values where the call minds: both included for whole numbers, and a low of 0
            for numbers that may not be negative; None where it does not mind.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    low: int | None = None
    high: int | None = None

    @property
    def span(self) -> int:
        """Elements from the first to the last in memory."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def bytes_held(self) -> int:
        return self.span * getattr(torch, self.dtype).itemsize

    @property
    def bytes_touched(self) -> int:
        """Of its elements; of a part of a matrix, not of the rows it lies in."""
        elements = 1
        for size, stride in zip(self.shape, self.strides, strict=True):
            elements *= size if stride else min(size, 1)
        return elements * getattr(torch, self.dtype).itemsize

    def operand(self) -> Operand:
        return Operand(shape=self.shape, dtype=self.dtype, layout=layout_of(self.shape, self.strides))


@dataclass(frozen=True, kw_only=True)
class Named:
    """A dtype, layout, memory format or device among the arguments, by its name."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call.

    Attributes:
        operator: with its overload, `aten::add.Tensor`.
        args: by position; tensors are `Tensor`, lists are tuples.
        kwargs: by name.
    """

    operator: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """In the operator's order."""
        return tuple(_tensors((self.args, tuple(value for _, value in self.kwargs))))

    @property
    def bytes_held(self) -> int:
        return sum(one.bytes_held for one in self.tensors)

    def function(self) -> Any:
        """The operator.

        Raises:
            MeasurementError: this version of torch has none of that name.
        """
        space, _, name = self.operator.partition("::")
        name, _, overload = name.partition(".")
        try:
            return getattr(getattr(getattr(torch.ops, space), name), overload or "default")
        except AttributeError:
            raise MeasurementError(
                f"there is no operator {self.operator}",
                why=f"torch {torch.__version__} does not know it",
                fix="correct the name, or load the library that registers it",
            ) from None

    def operation(self, direction: Direction = "forward") -> Operation:
        """The record of it: what decides the time, in one way of writing."""
        return Operation(
            operator=self.operator.partition(".")[0],
            operands=tuple(one.operand() for one in self.tensors),
            attributes=self._attributes(),
            direction=direction,
        )

    def _attributes(self) -> dict[str, Attribute]:
        found: dict[str, Attribute] = {}
        if overload := self.operator.partition(".")[2]:
            found["overload"] = overload
        arguments = self.function()._schema.arguments
        given = dict(self.kwargs)
        for place, argument in enumerate(arguments):
            value = self.args[place] if place < len(self.args) else given.get(argument.name, _ABSENT)
            if value is _ABSENT or isinstance(value, Tensor) or argument.name == "device":
                continue
            default = argument.default_value if argument.has_default_value() else _ABSENT
            default = tuple(default) if isinstance(default, list) else default
            if value != default or isinstance(value, bool) != isinstance(default, bool):
                found[argument.name] = _attribute(value)
        return found


_ABSENT = object()


def call_of(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, ranges: bool = True) -> Call:
    """The call that a dispatch mode sees.

    Args:
        ranges: also of the values of tensors; False where these have none.
    """
    return Call(
        operator=function.name(),
        args=tuple(_without_values(value, ranges=ranges) for value in args),
        kwargs=tuple(sorted((name, _without_values(value, ranges=ranges)) for name, value in kwargs.items())),
    )


def filled(value: Any, tensors: Iterator[Any], device: str) -> Any:
    """The argument with tensors in the places of their descriptions, taken in order."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, tuple):
        return [filled(one, tensors, device) for one in value]
    if isinstance(value, Named):
        return torch.device(device) if value.name == "device" else getattr(torch, value.name)
    return value


def _without_values(value: Any, *, ranges: bool) -> Any:
    if isinstance(value, torch.Tensor):
        return tensor_of(value, ranges=ranges)
    if isinstance(value, list | tuple):
        return tuple(_without_values(one, ranges=ranges) for one in value)
    if isinstance(value, torch.device):
        return Named(name="device")
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return Named(name=str(value).removeprefix("torch."))
    return value


def tensor_of(value: torch.Tensor, *, ranges: bool = True) -> Tensor:
    """What another process has to know of a tensor; for ranges it reads whole numbers, and signs."""
    low = high = None
    if value.layout is not torch.strided:
        raise MeasurementError(
            f"a tensor of layout {value.layout} is not measured",
            why="its time is a matter of which elements it holds",
            fix="leave the operation out",
        )
    if ranges and value.numel() and not value.is_meta:
        if value.dtype in _WHOLE:
            least, most = value.aminmax()
            low, high = int(least), int(most)
        elif value.is_floating_point() and bool((value >= 0).all()):
            low = 0
    return Tensor(
        shape=tuple(value.shape),
        strides=tuple(value.stride()),
        dtype=str(value.dtype).removeprefix("torch."),
        low=low,
        high=high,
    )


_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _tensors(one)


def _attribute(value: Any) -> Attribute:
    if isinstance(value, Named):
        return value.name
    if isinstance(value, tuple):
        if all(isinstance(one, Tensor) for one in value):
            return len(value)
        if any(isinstance(one, Tensor) or one is None for one in value):
            # which positions of a list of optional tensors are there, as in x[:, i]
            return tuple("None" if one is None else "tensor" for one in value)
        return value
    return value if isinstance(value, bool | int | float | str) else str(value)

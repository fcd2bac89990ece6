"""Values that forward reads from tensors of its call: `eps.item()`, `float(scale)`, `lengths.tolist()`.

A trace follows a number as a symbol where forward only computes with it. Where it configures an operator (a
rate, a length, a branch) the trace takes its value for a constant instead, and notes which tensor it came
from: the trace is right for calls in which the same place holds the same value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes  # pyright: ignore[reportPrivateUsage]
from torch.utils._pytree import tree_leaves

from daceml.frontend.capture.sizes.sizes_in_tensors import SizesInTensors, holds_sizes

_MOST_VALUES = 64
"""Of a tensor that `tolist` may read; longer ones are data."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ValueRead:
    """A value that a trace took for a constant.

    Attributes:
        source: the tensor that it was read from: its position among those of the arguments, or one that the
            module holds.
        name: of that tensor, as the user writes it.
        sizes, strides, offset: of the elements that were read, the last from the tensor's first one.
        convert: what Python made of them.
        value: the result.
    """

    source: int | torch.Tensor
    name: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    convert: Callable[[Any], Any]
    value: Any

    def now(self, tensors: Sequence[torch.Tensor] = ()) -> Any:
        """What the same place holds in a call with these tensors."""
        tensor = tensors[self.source] if isinstance(self.source, int) else self.source
        if self.sizes == () and tensor.numel() == 1:
            return self.convert(tensor.item())
        return self.convert(_elements(tensor, self.sizes, self.strides, self.offset))

    def holds(self, tensors: Sequence[torch.Tensor] = ()) -> bool:
        """Whether the value is the same in a call with these tensors."""
        return same_value(self.now(tensors), self.value)


def same_value(one: Any, other: Any) -> bool:
    """Whether two values are the same constant: NaN is itself, 0.0 is not -0.0."""
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_value, one, other))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(one, float):
        return (one == other and math.copysign(1.0, one) == math.copysign(1.0, other)) or (
            one != one and other != other
        )
    return one == other


@dataclass(kw_only=True)
class _Root:
    """A tensor of the call, and what stands for it while it is traced."""

    source: int | torch.Tensor
    name: str
    traced: torch.Tensor
    real: torch.Tensor
    version: int


@dataclass(kw_only=True)
class ReadValues:
    """What forward reads from tensors in one trace.

    Attributes:
        constants: whether numbers that a trace could follow as symbols are constants, too.
        found: values that are constants of the trace.
        symbols: whether numbers of tensors of the call are followed as symbols.
        unknown: whether a value of unknown origin became a constant.
        rebound: whether forward assigned the data of a tensor.
    """

    constants: bool
    found: list[ValueRead] = field(default_factory=list[ValueRead])
    symbols: bool = False
    unknown: bool = False
    rebound: bool = False
    _roots: dict[int, _Root] = field(default_factory=dict[int, _Root])
    _used: list[_Root] = field(default_factory=list[_Root])

    def follow(self, source: int | torch.Tensor, name: str, traced: torch.Tensor, real: torch.Tensor) -> None:
        """Recognize a tensor of the call, and views of it, by its memory in the trace."""
        place = _memory(traced)
        if place is not None and not (real.requires_grad and torch.is_grad_enabled()):
            # what is trained is another value at every call
            root = _Root(source=source, name=name, traced=traced, real=real, version=_version(traced))
            self._roots.setdefault(place, root)

    def read(self, convert: Callable[[Any], Any], tensor: torch.Tensor, follow: Callable[[], Any]) -> Any:
        """What forward reads from a tensor.

        Args:
            follow: lets torch read, which gives symbols for tensors that are traced.
        """
        root = self._roots.get(_memory(tensor) or 0)
        constant = self.constants or not isinstance(tensor, FakeTensor)
        if root is None or _version(root.traced) != root.version or not _is_part(tensor, root):
            value = follow()
            self.unknown |= any(not isinstance(leaf, _SYMBOLS) for leaf in tree_leaves(value))
            return value
        if not constant:
            self.symbols = True
            return follow()
        offset = int(tensor.storage_offset() - root.traced.storage_offset())
        place = tuple(tensor.shape), tuple(tensor.stride()), offset
        with ExitStack() as stack:
            stack.enter_context(torch._C.DisableTorchFunction())  # pyright: ignore[reportPrivateUsage]
            stack.enter_context(_disable_current_modes())
            value = convert(_elements(root.real, *place))
        sizes, strides, _ = place
        self.found.append(
            ValueRead(
                source=root.source, name=root.name, sizes=sizes, strides=strides, offset=offset,
                convert=convert, value=value,
            )
        )  # fmt: skip
        self._used.append(root)
        return value

    @property
    def overwritten(self) -> str:
        """A tensor of the call that forward changes after it has read it, as a counter; empty if none."""
        return next((root.name for root in self._used if _version(root.traced) != root.version), "")


_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _elements(tensor: torch.Tensor, sizes: Sequence[int], strides: Sequence[int], offset: int) -> Any:
    tensor = tensor.detach()
    return tensor.as_strided(sizes, strides, tensor.storage_offset() + offset).tolist()


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _memory(tensor: torch.Tensor) -> int | None:
    try:
        return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]
    except (NotImplementedError, RuntimeError):
        return None


def _is_part(tensor: torch.Tensor, root: _Root) -> bool:
    """Whether a tensor is elements of another one, at a place that no size decides."""
    if tensor.dtype != root.traced.dtype or tensor.is_neg() or tensor.is_conj():
        return False
    numbers = (*tensor.shape, *tensor.stride(), tensor.storage_offset(), root.traced.storage_offset())
    return all(isinstance(n, int) for n in numbers) and tensor.numel() <= _MOST_VALUES


def _item(elements: Any) -> Any:
    """The one element, however many dimensions it has."""
    while isinstance(elements, list):
        (elements,) = elements
    return elements


def _converted(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda elements: kind(_item(elements))


_CONVERSIONS: Mapping[Any, Callable[[Any], Any]] = {
    torch.Tensor.item: _item,
    torch.ops.aten.item: _item,
    torch.ops.aten.item.default: _item,
    torch.ops.aten._local_scalar_dense: _item,
    torch.ops.aten._local_scalar_dense.default: _item,
    torch.Tensor.tolist: lambda elements: elements,
    torch.Tensor.__float__: _converted(float),
    torch.Tensor.__int__: _converted(int),
    torch.Tensor.__index__: _converted(int),
    torch.Tensor.__bool__: _converted(bool),
    torch.Tensor.is_nonzero: _converted(bool),
    torch.is_nonzero: _converted(bool),
}
_ONE = frozenset(set(_CONVERSIONS) - {torch.Tensor.tolist})
_INTEGERS = (torch.Tensor.__index__,)

_OTHERS = frozenset(
    getattr(torch.Tensor, name)
    for name in ("numpy", "equal", "allclose", "__array__", "__complex__", "__contains__")
) | {torch.equal, torch.allclose}  # fmt: skip
"""What reads whole tensors."""

_DATA = torch.Tensor.data.__get__  # pyright: ignore[reportAttributeAccessIssue]
_REBOUND = torch.Tensor.data.__set__  # pyright: ignore[reportAttributeAccessIssue]


class ValueReads(TorchFunctionMode):
    """Notices where a tensor's value becomes one of Python's.

    `.data`, which no trace shows, is traced as `detach()`; an assignment to it is refused.
    """

    def __init__(self, reads: ReadValues) -> None:
        super().__init__()
        self.reads = reads
        self.sizes = SizesInTensors()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func == _DATA:
            return args[0].detach()
        if func == _REBOUND:
            self.reads.rebound = True
        convert = _CONVERSIONS.get(func)
        if convert is not None and len(args) == 1 and not kwargs:
            tensor = args[0]
            readable = isinstance(tensor, torch.Tensor) and (func not in _ONE or _is_one(tensor))
            if readable and not (func in _INTEGERS and tensor.is_floating_point()):
                elements = self.sizes.elements(tensor)
                if elements is not None:
                    return convert(elements)
                return self.reads.read(convert, tensor, lambda: func(*args))
        self.reads.unknown |= func in _OTHERS or convert is not None
        if func is torch.as_tensor and args and holds_sizes(args[0]):
            func = torch.tensor  # which torch.export traces without fixing them
        result = func(*args, **(kwargs or {}))
        self.sizes.note(func, args, kwargs or {}, result)
        return result


def _is_one(tensor: torch.Tensor) -> bool:
    sizes: tuple[Any, ...] = tuple(tensor.shape)
    return all(isinstance(n, int) and n == 1 for n in sizes)

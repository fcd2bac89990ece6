"""Calls that leave generated code, as data from which a driver is written."""

from __future__ import annotations

from dataclasses import dataclass

from daceml.sdfg.all_reduce import BeginAllReduce, WaitAllReduce
from daceml.sdfg.sizes import Size
from daceml.sdfg.tensor_lists import ListCall


@dataclass(frozen=True, kw_only=True)
class TensorView:
    """A torch tensor over an array's memory, from its first element: any sizes and strides, in elements."""

    array: str
    sizes: tuple[Size, ...]
    strides: tuple[Size, ...]


@dataclass(frozen=True, kw_only=True)
class FreshResult:
    """A result among the arguments that the function allocates itself, and whose buffer it hands over."""

    array: str


@dataclass(frozen=True, kw_only=True)
class PackedWeight:
    """A tensor in an order of torch's own, which no pointer describes: see `Preparation`."""

    array: str


Argument = PackedWeight | TensorView | FreshResult | tuple[int, ...] | float | int | bool | str | None

TORCH_OPERATOR = "torch_operator"
"""The function of `daceml/aten_fallback.h` that runs any operator of torch.

Its arguments are a call as text, the operands, and a `FreshResult` or None for each result."""


@dataclass(frozen=True, kw_only=True)
class AtenCall:
    """A call of one function of `daceml/aten.h`.

    Attributes:
        function: name in namespace `daceml::aten`.
        arguments: in order, after the call record (and the fresh result, where there is one); a tuple of ints
            is passed as a pointer to them, None as a null tensor (or as a null pointer to a fresh result).
        writes: the array that the call fills.
        fresh: whether the function allocates the result itself and hands its buffer over.
        flops: floating-point operations of the call.
        variety: what tells its time apart from that of other calls of the function with as many operations,
            the coarsest first, as how the windows of a convolution are; empty where nothing does.
        functions: special functions of each element of what it writes, by their names in `sdfg/costs.py`.
        more: further arrays among the arguments that the call fills, fresh ones as well.
        temporary_bytes: what the function allocates and frees itself besides its results, where that is much.
        channels_last: those of the fresh results that lie in memory as [N, H, W, C], and that the function
            gives as [N, C, H, W].
        draws: whether the call takes numbers from torch's generator: such calls stay in their order.
    """

    function: str
    arguments: tuple[Argument, ...]
    writes: str
    fresh: bool = False
    flops: Size = 0
    variety: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    temporary_bytes: Size = 0
    channels_last: tuple[str, ...] = ()
    draws: bool = False

    def reads(self) -> tuple[str, ...]:
        """Arrays that the call reads."""
        arrays = (a.array for a in self.arguments if isinstance(a, PackedWeight | TensorView))
        return tuple(dict.fromkeys(a for a in arrays if a not in (self.writes, *self.more)))

    def handed_over(self) -> tuple[str, ...]:
        """Arrays whose memory the function allocates."""
        named = tuple(a.array for a in self.arguments if isinstance(a, FreshResult))
        return (self.writes, *named) if self.fresh else named


@dataclass(frozen=True, kw_only=True)
class FallbackCall:
    """An operator that ONNX Runtime executes.

    Attributes:
        model: a serialised ONNX model of this one node.
        inputs, outputs: arrays, in the order of the model's inputs and outputs.
    """

    operator: str
    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ExternalCall:
    """An external call with its origin.

    Attributes:
        position: place of its operator among the model's; draws of random numbers keep this order.
    """

    action: AtenCall | FallbackCall | ListCall | BeginAllReduce | WaitAllReduce
    label: str
    position: int = 0
    module_path: str = ""
    source: str = ""

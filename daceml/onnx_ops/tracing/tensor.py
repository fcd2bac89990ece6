"""Lazy tensors: what a traced implementation computes with.

A `Tensor` is a shape, an element type and a function from indices to a scalar expression. numpy's operators
and index maps compose without making arrays. A reduction stays open until its result is read at another index
than its own; then it becomes an intermediate. Assigning to an output (`Y[:] = ...`) records a computation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import dace
import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from daceml.onnx_ops.tracing.indexing import (
    Position,
    axes_of,
    axis_of,
    broadcast_index,
    broadcast_shapes,
    common_factors,
    fits,
    flatten_index,
    merged_index,
    same,
    unflatten_index,
)
from daceml.onnx_ops.tracing.slicing import region, sliced
from daceml.onnx_ops.tracing.trace import Refused, Trace, active_trace
from daceml.sdfg.builder import parameters, reduced_parameters
from daceml.sdfg.scalar import (
    FLOATS,
    UFUNCS,
    DType,
    Index,
    Scalar,
    apply,
    cast,
    compute_type,
    index_value,
    literal,
    read,
    reduce_over,
    ufunc_operation,
)
from daceml.sdfg.sizes import product
from daceml.sdfg.tasklet_code import find_reductions

At = Callable[[tuple[Position, ...]], Scalar]
Operator = Literal["sum", "prod", "max", "min"]


class Tensor(NDArrayOperatorsMixin):
    """A tensor expression.

    Attributes:
        shape: ints or symbolic sizes; () for rank 0.
        dtype: element type; half-precision operands give float32 results, which an output rounds once.
        value: the elements of a constant, None for anything else.
        sizes: elements that follow from sizes of the network's inputs, None for anything else.
        array: the array that holds it, None for an expression.
        open: whether its scalar expression holds a reduction.
    """

    def __hash__(self) -> int:
        return id(self)

    def __init__(
        self,
        shape: Sequence[Index],
        dtype: DType,
        at: At,
        *,
        trace: Trace | None = None,
        value: np.ndarray | None = None,
        sizes: tuple[Index, ...] | None = None,
        array: str | None = None,
        open: bool = False,
        sample: Scalar | None = None,
    ) -> None:
        self.shape, self.dtype, self.value, self.array, self.open = tuple(shape), dtype, value, array, open
        self.sizes = sizes
        self._trace = trace
        self._at = at
        # The element at `i0, i1, …`, where making the tensor needed it already.
        self._known: dict[tuple[Any, ...], Scalar] = (
            {} if sample is None else {parameters(len(self.shape)): sample}
        )

    @property
    def trace(self) -> Trace:
        """The trace that computations go to."""
        return self._trace or active_trace()

    @property
    def numbers(self) -> tuple[Index, ...] | None:
        """Whole numbers that are known before the network runs, as numbers and expressions."""
        return self.sizes if self.value is None else tuple(map(int, self.value.reshape(-1)))

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> Index:
        """Number of elements."""
        return product(self.shape)

    def at(self, index: Sequence[Position]) -> Scalar:
        """The element at an index."""
        key = tuple(index)
        if key not in self._known:
            self._known[key] = self._at(key)
        return self._known[key]

    def __getitem__(self, key: Any) -> Any:
        """An element where every dimension has an index expression, else a tensor by basic slicing."""
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) == self.rank and not any(
            isinstance(k, slice) or k is None or k is Ellipsis for k in keys
        ):
            return self.closed().at(keys)
        shape, index = sliced(self.shape, keys)
        return self._reindexed(shape, index)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Tensor:
        if method != "__call__" or kwargs or ufunc.__name__ not in UFUNCS:
            raise TypeError(f"np.{ufunc.__name__} with {kwargs or method} has no lazy form")
        first = next(i for i in inputs if isinstance(i, Tensor))
        return elementwise(ufunc_operation(ufunc.__name__, first.dtype), *inputs)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError("a tensor expression has no elements while it is traced")

    def closed(self) -> Tensor:
        """The same tensor without an open reduction: that of an intermediate array where there was one."""
        return self.materialize() if self.open else self

    def materialize(self) -> Tensor:
        """Hold the elements in an array of their own from here on."""
        if self.array is None:
            trace = self.trace
            array = trace.intermediate("part", self.shape, self.dtype)
            trace.compute(array.name, parameters(self.rank), self.shape, self.at(parameters(self.rank)))
            self.hold(array.name)
        return self

    def hold(self, array: str) -> None:
        """The elements are in an array from here on."""
        self.array, self.open = array, False
        self._at = element_reader(array, self.dtype, self.shape)
        self._known = {}

    def astype(self, dtype: DType) -> Tensor:
        """Each element converted."""
        return self._map(lambda s: cast(s, dtype), dtype)

    def _map(self, function: Callable[[Scalar], Scalar], dtype: DType) -> Tensor:
        return Tensor(self.shape, dtype, lambda i: function(self.at(i)), trace=self._trace, open=self.open)

    def _reindexed(
        self, shape: Sequence[Index], index: Callable[[tuple[Position, ...]], Sequence[Position]]
    ) -> Tensor:
        source = self.closed()
        return Tensor(shape, source.dtype, lambda i: source.at(index(i)), trace=self._trace)

    def transpose(self, *axes: int) -> Tensor:
        """Dimensions permuted; reversed where no axes are given."""
        order = [axis_of(a, self.rank) for a in axes] if axes else list(reversed(range(self.rank)))
        inverse = [order.index(d) for d in range(self.rank)]
        return self._reindexed([self.shape[a] for a in order], lambda i: [i[d] for d in inverse])

    def broadcast_to(self, shape: Sequence[Index]) -> Tensor:
        """numpy's broadcasting to a shape of at least this rank."""
        if len(shape) == self.rank and all(same(a, b) for a, b in zip(shape, self.shape, strict=True)):
            return self
        return self._reindexed(shape, lambda i: broadcast_index(i, self.shape, tuple(shape)))

    def expand_dims(self, *axes: int) -> Tensor:
        """Size-1 dimensions inserted at these axes of the result."""
        rank = self.rank + len(axes)
        new = {axis_of(a, rank) for a in axes}
        old = iter(self.shape)
        shape = [1 if d in new else next(old) for d in range(rank)]
        return self._reindexed(shape, lambda i: [p for d, p in enumerate(i) if d not in new])

    def squeeze(self, *axes: int) -> Tensor:
        """Size-1 dimensions at these axes removed."""
        gone = {axis_of(a, self.rank) for a in axes}
        kept = [d for d in range(self.rank) if d not in gone]
        place = {d: n for n, d in enumerate(kept)}
        return self._reindexed(
            [self.shape[d] for d in kept],
            lambda i: [i[place[d]] if d in place else 0 for d in range(self.rank)],
        )

    def reshape(self, shape: Sequence[Index]) -> Tensor:
        """The same elements in row-major order; indices stay affine where dimensions are only split."""
        shape = tuple(shape)
        common = common_factors(self.shape, shape)
        if common is None:
            return self._reindexed(shape, lambda i: unflatten_index(flatten_index(i, shape), self.shape))
        factors, mine, others = common

        def index(result: tuple[Position, ...]) -> Sequence[Position]:
            parts: list[Position] = []
            for position, group in zip(result, others, strict=True):
                parts += unflatten_index(position, [factors[d] for d in group]) if group else ()
            return merged_index(parts, factors, mine)

        return self._reindexed(shape, index)

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Sum; float32 in a float64 accumulator."""
        return self.reduce("sum", axis, keepdims)

    def prod(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Product; float32 in a float64 accumulator."""
        return self.reduce("prod", axis, keepdims)

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Largest element; NaN where there is one."""
        return self.reduce("max", axis, keepdims)

    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Smallest element; NaN where there is one."""
        return self.reduce("min", axis, keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Mean, divided in the accumulator's type; NaN over no elements."""
        count = product(self.shape[a] for a in axes_of(axis, self.rank))
        return self.reduce(
            "sum", axis, keepdims, finish=lambda total: total / index_value(count, total.dtype)
        )

    def reduce(
        self,
        operator: Operator,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        finish: Callable[[Scalar], Scalar] | None = None,
    ) -> Tensor:
        """Reduction over axes; `finish` works on the accumulator before it is converted back."""
        source = self.closed()
        axes = axes_of(axis, self.rank)
        over_nothing = any(same(self.shape[a], 0) for a in axes)
        if operator in ("max", "min") and self.dtype != dace.bool_ and over_nothing:
            raise Refused(f"the {operator} over no elements is not defined")
        running = [a for a in axes if not same(self.shape[a], 1)]
        params = dict(zip(running, reduced_parameters(len(running)), strict=True))
        shape = [1 if d in axes else s for d, s in enumerate(self.shape) if keepdims or d not in axes]
        outer = {d: n for n, d in enumerate(d for d in range(self.rank) if keepdims or d not in axes)}
        dtype = compute_type(source.dtype)

        def at(index: tuple[Position, ...]) -> Scalar:
            full = [params.get(d, 0) if d in axes else index[outer[d]] for d in range(self.rank)]
            body = source.at(full)
            extents = [self.shape[a] for a in running]
            total = reduce_over(operator, list(params.values()), extents, body) if running else body
            return cast(finish(total) if finish else total, dtype)

        return Tensor(shape, dtype, at, trace=self._trace, open=bool(running))


def identity_place(index: Sequence[Index]) -> Sequence[Index]:
    """Where the tensor's index is the array's."""
    return index


class Output(Tensor):
    """An output of the node; assigning to it, or to a box of it, records a computation.

    `place` turns an index of this tensor into one of the array behind it.
    """

    def __init__(
        self,
        shape: Sequence[Index],
        dtype: DType,
        array: str,
        trace: Trace,
        place: Callable[[Sequence[Index]], Sequence[Index]] = identity_place,
    ) -> None:
        super().__init__(shape, dtype, element_reader(array, dtype, shape), trace=trace, array=array)
        self.place = place
        self.name = array

    def __setitem__(self, key: Any, value: Tensor | float | np.generic) -> None:
        keys = key if isinstance(key, tuple) else (key,)
        starts, lengths, steps = region(self.shape, keys)
        tensor = value if isinstance(value, Tensor) else full(lengths, value, self.dtype)
        if not fits(tensor.shape, lengths):
            raise Refused(
                f"a value of shape {list(tensor.shape)} does not fit a box of shape {list(lengths)}"
            )
        whole = all(same(s, 0) and p == 1 for s, p in zip(starts, steps, strict=True)) and all(
            same(a, b) for a, b in zip(lengths, self.shape, strict=True)
        )
        exact = len(tensor.shape) == len(lengths) and all(
            same(a, b) for a, b in zip(tensor.shape, lengths, strict=True)
        )
        params = parameters(len(lengths))
        index: list[Any] = [
            s + i * p if p != 1 else s + i for s, p, i in zip(starts, steps, params, strict=True)
        ]
        scalar = tensor.at(params) if exact else tensor.broadcast_to(lengths).at(params)
        self.trace.compute(self.name, self.place(index), lengths, scalar)
        if whole and exact and tensor.open and tensor.dtype == self.dtype and self.place is identity_place:
            tensor.hold(self.name)

    def split(self, axis: int, sizes: Sequence[Index]) -> Output:
        """The same elements with one dimension split into several; assigning writes the same array."""
        axis = axis_of(axis, self.rank)
        shape = (*self.shape[:axis], *sizes, *self.shape[axis + 1 :])

        def place(index: Sequence[Index]) -> Sequence[Index]:
            inner = flatten_index(index[axis : axis + len(sizes)], sizes)
            return self.place([*index[:axis], inner, *index[axis + len(sizes) :]])

        return Output(shape, self.dtype, self.name, self.trace, place)

    def with_unit(self, axis: int) -> Output:
        """The same elements with a dimension of size 1 inserted; assigning writes the same array."""

        def place(index: Sequence[Index]) -> Sequence[Index]:
            return self.place([*index[:axis], *index[axis + 1 :]])

        return Output([*self.shape[:axis], 1, *self.shape[axis:]], self.dtype, self.name, self.trace, place)

    def permuted(self, *axes: int) -> Output:
        """The same elements with dimensions permuted; assigning writes the same array."""

        def place(index: Sequence[Index]) -> Sequence[Index]:
            return self.place([index[axes.index(d)] for d in range(self.rank)])

        return Output([self.shape[a] for a in axes], self.dtype, self.name, self.trace, place)


def full(shape: Sequence[Index], value: float | np.generic, dtype: DType) -> Tensor:
    """A tensor of equal elements."""
    element = literal(value, dtype)
    return Tensor(shape, compute_type(dtype), lambda _: element)


def compute(shape: Sequence[Index], function: Callable[..., Scalar]) -> Tensor:
    """The tensor whose element at `i, j, …` is `function(i, j, …)`."""
    sample = function(*parameters(len(shape)))
    is_open = bool(find_reductions(sample))
    return Tensor(shape, sample.dtype, lambda i: function(*i), open=is_open, sample=sample)


def sum_over(extents: Sequence[Index], function: Callable[..., Scalar]) -> Scalar:
    """Sum of `function(k, …)` over a box, converted back from the accumulator to the type of the terms."""
    return _over("sum", extents, function)


def max_over(extents: Sequence[Index], function: Callable[..., Scalar]) -> Scalar:
    """Largest `function(k, …)` over a box; NaN where there is one."""
    return _over("max", extents, function)


def min_over(extents: Sequence[Index], function: Callable[..., Scalar]) -> Scalar:
    """Smallest `function(k, …)` over a box; NaN where there is one."""
    return _over("min", extents, function)


def _over(operator: Operator, extents: Sequence[Index], function: Callable[..., Scalar]) -> Scalar:
    running = [d for d, e in enumerate(extents) if not same(e, 1)]
    params = dict(zip(running, reduced_parameters(len(running)), strict=True))
    body = function(*(params.get(d, 0) for d in range(len(extents))))
    if not running:
        return body
    return cast(reduce_over(operator, list(params.values()), [extents[d] for d in running], body), body.dtype)


def elementwise(op: str, *operands: Any) -> Tensor:
    """An operation of the scalar table on tensors and numbers, broadcast."""
    tensors = [o for o in operands if isinstance(o, Tensor)]
    shape = broadcast_shapes([t.shape for t in tensors], tensors[0].trace.known_sizes)
    opened = {id(t): t for t in tensors if t.open}
    for tensor in opened.values():
        if len(opened) > 1 or len(tensor.shape) != len(shape) or not all(map(same, tensor.shape, shape)):
            tensor.materialize()

    def at(index: tuple[Position, ...]) -> Scalar:
        return apply(
            op,
            *(o.at(broadcast_index(index, o.shape, shape)) if isinstance(o, Tensor) else o for o in operands),
        )

    sample = at(parameters(len(shape)))
    return Tensor(shape, sample.dtype, at, open=any(t.open for t in tensors), sample=sample)


def is_float(tensor: Tensor) -> bool:
    """Whether the elements are floating-point numbers."""
    return tensor.dtype in FLOATS


def element_reader(array: str, dtype: DType, shape: Sequence[Index]) -> At:
    """The elements of an array; rank 0 is held in shape (1,)."""
    extents = tuple(shape) or (1,)
    return lambda index: read(array, dtype, index or (0,), extents)

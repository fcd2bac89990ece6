"""Operators that move data: views, copies, joins, lookups, pooling, and tensors made anew."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from daceml.operations.database.records import Operand, Operation
from daceml.operations.work.work_rule import (
    Flops,
    Reads,
    Results,
    Rules,
    WorkRule,
    as_first,
    bytes_of,
    integers,
    like,
    per_operand,
    per_result,
)

# nothing is read or written: another way of looking at a tensor, or memory that nobody has filled
_FREE = (
    "view _unsafe_view reshape as_strided t transpose permute expand expand_as slice select narrow squeeze "
    "unsqueeze flatten unflatten split split_with_sizes unsafe_split "
    "unsafe_split_with_sizes chunk unbind unfold diagonal alias detach lift_fresh "
    "movedim swapaxes swapdims view_as real imag view_as_real view_as_complex empty empty_like empty_strided "
    "new_empty new_empty_strided resize resolve_conj resolve_neg size stride sym_size is_nonzero numpy_T "
    "mT adjoint result_type broadcast_to broadcast_tensors meshgrid set_ requires_grad_ _reshape_alias"
)
FREE = frozenset(_FREE.split())


def _cast(operation: Operation) -> Sequence[Operand] | None:
    dtype = operation.attributes.get("dtype")
    known = isinstance(dtype, str) and dtype not in ("", "None")
    return [like(operation.operands[0], dtype=str(dtype) if known else None)] if operation.operands else None


def _joined(operation: Operation) -> Sequence[Operand] | None:
    """All operands one after another, along whichever dimension."""
    if not operation.operands:
        return None
    first = operation.operands[0]
    return [like(first, shape=(sum(one.elements for one in operation.operands),))]


def _looked_up(table: int, places: int) -> Results:
    """A row of the operand `table` for each element of the operand `places`: embedding."""

    def results(operation: Operation) -> Sequence[Operand] | None:
        if len(operation.operands) <= max(table, places):
            return None
        row = operation.operands[table].shape[1:]
        return [like(operation.operands[table], shape=(*operation.operands[places].shape, *row))]

    return results


def _along_dim(operation: Operation) -> Sequence[Operand] | None:
    """`index_select`: as many slices of a dimension as there are indices."""
    if len(operation.operands) < 2:
        return None
    table, places = operation.operands[:2]
    dim = operation.attributes.get("dim", 0)
    shape = list(table.shape)
    if shape and isinstance(dim, int):
        shape[dim] = places.elements
    return [like(table, shape=shape)]


def _gathered(operation: Operation) -> Sequence[Operand] | None:
    if len(operation.operands) < 2:
        return None
    return [like(operation.operands[0], shape=operation.operands[1].shape)]


def _indexed(operation: Operation) -> Sequence[Operand] | None:
    """`x[i, j]` with indices for the leading dimensions; masks say too little of the result."""
    if len(operation.operands) < 2 or any(one.dtype in ("bool", "uint8") for one in operation.operands[1:]):
        return None
    told = operation.attributes.get("indices")
    if isinstance(told, tuple) and told != ("tensor",) * len(told):
        return None
    table, *places = operation.operands
    widest = max(places, key=lambda one: one.elements)
    return [like(table, shape=(*widest.shape, *table.shape[len(places) :]))]


def _taken(operation: Operation, results: Sequence[Operand]) -> float:
    """What is looked up, and where: the rest of the table is not read."""
    return sum(one.size_bytes for one in results) + sum(map(bytes_of, operation.operands[1:]))


def _after_first(operation: Operation, results: Sequence[Operand]) -> float:
    return sum(map(bytes_of, operation.operands[1:]))


def _nothing(operation: Operation, results: Sequence[Operand]) -> float:
    return 0.0


def _scattered(operation: Operation) -> Sequence[Operand] | None:
    """What is written: as many elements as the source has, of the first operand's type."""
    if len(operation.operands) < 2:
        return None
    source = operation.operands[-1]
    return [like(operation.operands[0], shape=source.shape)]


def _of_rows(name: str) -> Results:
    """The gradient of a table: `name` rows of as many columns as the gradient has."""

    def results(operation: Operation) -> Sequence[Operand] | None:
        rows = operation.attributes.get(name)
        if not operation.operands or not isinstance(rows, int):
            return None
        return [like(operation.operands[0], shape=(rows, *operation.operands[0].shape[-1:]))]

    return results


def _taken_from(operation: Operation) -> Sequence[Operand] | None:
    """The tensor that a view was taken of, whose gradient is zero elsewhere."""
    sizes = operation.attributes.get("input_sizes")
    if not operation.operands or not isinstance(sizes, tuple):
        return None
    return [like(operation.operands[0], shape=tuple(one for one in sizes if isinstance(one, int)))]


def _made(operation: Operation) -> Sequence[Operand] | None:
    """A new tensor of the attribute `size`, or like the operand."""
    size = operation.attributes.get("size")
    dtype = operation.attributes.get("dtype")
    if isinstance(size, tuple):
        shape = tuple(one for one in size if isinstance(one, int))
        return [Operand(shape=shape, dtype=dtype if isinstance(dtype, str) and dtype else "float32")]
    return _cast(operation)


def _counted(operation: Operation) -> Sequence[Operand] | None:
    """`arange`: numbers from `start` to `end`."""
    start, end, step = (operation.attributes.get(name) for name in ("start", "end", "step"))
    first, apart = start if isinstance(start, int) else 0, step if isinstance(step, int) and step else 1
    if not isinstance(end, int):
        return None
    return [Operand(shape=(max(0, -((first - end) // apart)),), dtype="int64")]


def _pooled(rank: int, *dtypes: str | None) -> Results:
    """Windows over the last `rank` dimensions."""

    def results(operation: Operation) -> Sequence[Operand] | None:
        told = operation.attributes
        if not operation.operands or len(operation.operands[0].shape) <= rank or "kernel_size" not in told:
            return None
        x = operation.operands[0]
        kernel = integers(told["kernel_size"], rank, 1)
        stride = integers(told["stride"], rank, 1) if told.get("stride", ()) != () else kernel
        padding, dilation = (integers(told.get(n), rank, d) for n, d in (("padding", 0), ("dilation", 1)))
        up = told.get("ceil_mode") is True
        spatial: list[int] = []
        for n, k, s, p, d in zip(x.shape[-rank:], kernel, stride, padding, dilation, strict=True):
            left = n + 2 * p - d * (k - 1) - 1
            size = (left + s - 1 if up else left) // s + 1
            # a window that begins in the padding behind the data does not count
            spatial.append(size - 1 if up and (size - 1) * s >= n + p else size)
        return [like(x, shape=(*x.shape[:-rank], *spatial), dtype=dtype) for dtype in dtypes]

    return results


def _sized(rank: int, *dtypes: str | None) -> Results:
    """The last `rank` dimensions are those of `output_size`."""

    def results(operation: Operation) -> Sequence[Operand] | None:
        size = operation.attributes.get("output_size")
        if not operation.operands or size is None or isinstance(size, str):
            return None
        x = operation.operands[0]
        spatial = integers(size, rank, 1)
        return [like(x, shape=(*x.shape[:-rank], *spatial), dtype=dtype) for dtype in dtypes]

    return results


def _before_resizing(operation: Operation) -> Sequence[Operand] | None:
    size = operation.attributes.get("input_size")
    if not operation.operands or not isinstance(size, tuple):
        return None
    return [like(operation.operands[0], shape=integers(size, len(operation.operands[0].shape), 1))]


def _window_flops(operation: Operation, results: Sequence[Operand]) -> float:
    kernel = operation.attributes.get("kernel_size")
    count = prod(integers(kernel, results[0].shape.__len__() - 2, 1)) if kernel is not None else 1
    return float(max(count * results[0].elements, operation.operands[0].elements if kernel is None else 0))


def _second_operand(operation: Operation) -> Sequence[Operand] | None:
    return [like(operation.operands[1])] if len(operation.operands) > 1 else None


def _gradient_reads(*places: int) -> Reads:
    def reads(operation: Operation, results: Sequence[Operand]) -> float:
        return sum(bytes_of(operation.operands[p]) for p in places if p < len(operation.operands))

    return reads


def _without(flops: Flops, results: Results) -> WorkRule:
    return WorkRule(results=results, flops=flops)


_COPY = WorkRule(results=as_first)
_FILL = WorkRule(results=as_first, reads=_nothing)
# how many dimensions, and flops for an element of the larger tensor
_RESIZING: dict[str, tuple[int, float]] = {
    "nearest1d": (1, 0), "nearest2d": (2, 0), "nearest3d": (3, 0), "bilinear2d": (2, 8), "bicubic2d": (2, 40),
    "trilinear3d": (3, 16),
}  # fmt: skip
_MAKE = WorkRule(results=_made, reads=_nothing)

MOVEMENTS: Rules = {
    **dict.fromkeys(("clone", "contiguous", "repeat_interleave", "constant_pad_nd"), _COPY),
    **dict.fromkeys(("to", "_to_copy", "type_as", "_autocast_to_reduced_precision"), WorkRule(results=_cast)),
    **dict.fromkeys(("cat", "concat", "concatenate", "stack", "hstack", "vstack"), WorkRule(results=_joined)),
    **dict.fromkeys(
        ("fill", "zero", "bernoulli", "uniform", "normal", "random", "exponential"), _FILL
    ),
    **dict.fromkeys(
        (
            "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "rand", "randn", "rand_like",
            "randn_like", "new_zeros", "new_ones", "new_full", "randint",
        ),
        _MAKE,
    ),
    "arange": WorkRule(results=_counted, reads=_nothing),
    "embedding": WorkRule(results=_looked_up(0, 1), reads=_taken),
    "index_select": WorkRule(results=_along_dim, reads=_taken),
    **dict.fromkeys(("gather", "take_along_dim"), WorkRule(results=_gathered, reads=_taken)),
    **dict.fromkeys(("index", "_unsafe_index"), WorkRule(results=_indexed, reads=_taken)),
    **dict.fromkeys(
        (
            "index_put", "_index_put_impl", "index_add", "index_copy", "scatter", "scatter_add",
            "slice_scatter",
        ),
        WorkRule(results=_scattered, reads=_after_first),
    ),
    **dict.fromkeys(
        ("embedding_dense_backward", "embedding_backward"), WorkRule(results=_of_rows("num_weights"))
    ),
    **dict.fromkeys(
        ("slice_backward", "select_backward", "diagonal_backward"), WorkRule(results=_taken_from)
    ),
    **{f"max_pool{n}d": _without(_window_flops, _pooled(n, None)) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": _without(_window_flops, _pooled(n, None, "int64")) for n in (2, 3)},
    **{f"avg_pool{n}d": _without(_window_flops, _pooled(n, None)) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": _without(per_operand(1), _sized(n, None)) for n in (1, 2, 3)},
    **{f"_adaptive_avg_pool{n}d": _without(per_operand(1), _sized(n, None)) for n in (2, 3)},
    **{f"adaptive_max_pool{n}d": _without(per_operand(1), _sized(n, None, "int64")) for n in (2, 3)},
    # of (gradient, operand, indices) the operand lends its sizes only
    **{
        f"max_pool{n}d_with_indices_backward": WorkRule(results=_second_operand, reads=_gradient_reads(0, 2))
        for n in (2, 3)
    },
    **dict.fromkeys(
        ("avg_pool2d_backward", "avg_pool3d_backward", "_adaptive_avg_pool2d_backward",
         "_adaptive_avg_pool3d_backward"),
        WorkRule(results=_second_operand, reads=_gradient_reads(0)),
    ),
    **{
        f"upsample_{kind}": WorkRule(results=_sized(rank, None), flops=per_result(flops))
        for kind, (rank, flops) in _RESIZING.items()
    },
    **{
        f"upsample_{kind}_backward": WorkRule(results=_before_resizing, flops=per_operand(flops))
        for kind, (_, flops) in _RESIZING.items()
    },
}  # fmt: skip

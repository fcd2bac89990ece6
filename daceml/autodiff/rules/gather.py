"""Reads at positions that depend on data: their gradients are added up where they were read.

A scatter runs over lanes: dimensions that data and result share. Updates of one element follow each other in
the order in which they were read.
"""

from __future__ import annotations

from collections.abc import Sequence

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.native.gather import check_positions, constant_position, position
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import axis_of
from daceml.onnx_ops.tracing.scatter import Place, scatter
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, full, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, compute_type, literal


def zeros(gradient: Output) -> Tensor:
    """What additions start from."""
    return full(gradient.shape, 0, gradient.dtype)


def _rows(dy: Tensor, indices: Tensor, gradient: Output, axis: int) -> None:
    """`gradient[..., indices, ...] += dy`, where dy has the dimensions of the indices in place of `axis`."""
    axis = axis_of(axis, gradient.rank)
    check_positions(indices, gradient.shape[axis])
    held, last = indices.closed(), axis + indices.rank
    extent = gradient.shape[axis]

    def along(index: tuple[Index, ...]) -> Scalar:
        return position(held, index[axis:last], extent)

    places: list[Place] = [d if d < axis else d + indices.rank - 1 for d in range(gradient.rank)]
    places[axis] = along
    scatter(gradient, zeros(gradient), dy, places, "add")


def _varies(data: Tensor, indices: Tensor, axis: int) -> str | None:
    known = constant_position(indices, data.shape[axis_of(axis, data.rank)]) is not None
    return "a lookup at one constant position is differentiated as the slice that it is" if known else None


@vjp("Gather", wrt="data", name="GatherGrad", when=_varies)
def gather_vjp(indices: Tensor, doutput: Tensor, ddata: Output, *, axis: int = 0) -> None:
    """ddata[..., indices, ...] += dY."""
    _rows(doutput, indices, ddata, axis)


@vjp("Embedding", wrt="weight", name="EmbeddingGrad", domain="daceml", by_definition=True)
def embedding_vjp(
    indices: Tensor, dresult: Tensor, dweight: Output, *, padding: int = -1, by_frequency: int = 0
) -> None:
    """dweight[indices] += dY without the row of padding; by frequency, each divided by its row's count."""
    extent, rank = dweight.shape[0], indices.rank
    dtype = compute_type(dresult.dtype)
    counts = None
    if by_frequency:

        def count(*index: Index) -> Scalar:
            row = position(indices, index, extent)

            def equal(*other: Index) -> Scalar:
                return where(position(indices, other, extent) == row, literal(1, dtype), literal(0, dtype))

            return sum_over(indices.shape, equal)

        counts = compute(indices.shape, count).materialize()

    def share(*index: Index) -> Scalar:
        value = dresult[index]
        if counts is not None:
            value = value / counts.at(index[:rank])
        if padding < 0:
            return value
        return where(position(indices, index[:rank], extent) == padding, literal(0, dtype), value)

    plain = padding < 0 and not by_frequency
    _rows(dresult if plain else compute(dresult.shape, share), indices, dweight, 0)


@vjp("GatherElements", wrt="data", name="GatherElementsGrad")
def gather_elements_vjp(indices: Tensor, doutput: Tensor, ddata: Output, *, axis: int = 0) -> None:
    """Along `axis` at positions that depend on data, in the other dimensions where they are."""
    axis = axis_of(axis, ddata.rank)
    check_positions(indices, ddata.shape[axis])
    held, extent = indices.closed(), ddata.shape[axis]
    places: list[Place] = list(range(ddata.rank))
    places[axis] = lambda index: position(held, index, extent)
    scatter(ddata, zeros(ddata), doutput, places, "add")


@vjp("GatherND", wrt="data", name="GatherNDGrad")
def gather_nd_vjp(indices: Tensor, doutput: Tensor, ddata: Output, *, batch_dims: int = 0) -> None:
    """Several positions for each read; batches stay apart."""
    depth, outer = indices.shape[-1], indices.rank - 1
    if not isinstance(depth, int):
        raise Refused("the number of positions in an index is symbolic")
    for d in range(depth):
        check_positions(indices, ddata.shape[batch_dims + d], offset=d, step=depth)
    held = indices.closed()

    def along(d: int) -> Place:
        return lambda index: position(held, (*index[:outer], d), ddata.shape[batch_dims + d])

    inner = range(outer, outer + ddata.rank - batch_dims - depth)
    scatter(ddata, zeros(ddata), doutput, [*range(batch_dims), *map(along, range(depth)), *inner], "add")


@vjp("GatherPairs", wrt="data", name="GatherPairsGrad", domain="daceml")
def gather_pairs_vjp(
    first: Tensor,
    second: Tensor,
    dresult: Tensor,
    ddata: Output,
    *,
    perm: Sequence[int],
    inverse: Sequence[int],
) -> None:
    """Pairs of positions in two neighbouring dimensions."""
    axis = perm[0]
    for indices, extent in ((first, ddata.shape[axis]), (second, ddata.shape[axis + 1])):
        check_positions(indices, extent)
    last = axis + first.rank
    row, column = first.closed(), second.closed()
    places: list[Place] = [
        *range(axis),
        lambda index: position(row, index[axis:last], ddata.shape[axis]),
        lambda index: position(column, index[axis:last], ddata.shape[axis + 1]),
        *range(last, last + ddata.rank - axis - 2),
    ]
    scatter(ddata, zeros(ddata), dresult, places, "add")

"""Writes at positions that depend on data: what was overwritten gets no gradient, and updates read theirs.

Where several updates went to one element, each gets the element's gradient, as in torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.native.folding import pooled_shape
from daceml.onnx_ops.native.gather import check_positions, position
from daceml.onnx_ops.native.scatter import cache_position
from daceml.onnx_ops.tracing.indexing import axis_of, unflatten_index
from daceml.onnx_ops.tracing.scatter import Place, scatter
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, full
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar
from daceml.sdfg.sizes import product


def _linear(reduction: str | None) -> str | None:
    if reduction in (None, "none", "add"):
        return None
    return f"with reduction {reduction} the gradient depends on what was written"


@vjp("ScatterElements", when=_linear)
def scatter_elements_vjp(
    indices: Tensor,
    doutput: Tensor,
    ddata: Output | None,
    dupdates: Output | None,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> None:
    """ddata = dY, zero where it was overwritten; dupdates = dY at the positions."""
    axis = axis_of(axis, doutput.rank)
    extent = doutput.shape[axis]
    check_positions(indices, extent)
    held = indices.closed()

    def found(index: tuple[Index, ...]) -> Scalar:
        return position(held, index, extent)

    if ddata is not None:
        places: list[Place] = list(range(doutput.rank))
        places[axis] = found
        _survivors(ddata, doutput, indices.shape, places, reduction)
    if dupdates is not None:

        def element(*index: Index) -> Scalar:
            return doutput[(*index[:axis], found(index), *index[axis + 1 :])]

        _assign(dupdates, compute(indices.shape, element))


@vjp("ScatterND", when=_linear)
def scatter_nd_vjp(
    indices: Tensor,
    doutput: Tensor,
    ddata: Output | None,
    dupdates: Output | None,
    *,
    reduction: str = "none",
) -> None:
    """The same with several positions for each update."""
    depth, outer = indices.shape[-1], indices.rank - 1
    if not isinstance(depth, int):
        raise Refused("the number of positions in an index is symbolic")
    for d in range(depth):
        check_positions(indices, doutput.shape[d], offset=d, step=depth)
    held = indices.closed()

    def along(d: int) -> Place:
        return lambda index: position(held, (*index[:outer], d), doutput.shape[d])

    shape = (*indices.shape[:-1], *doutput.shape[depth:])
    if ddata is not None:
        inner = range(outer, outer + doutput.rank - depth)
        _survivors(ddata, doutput, shape, [*map(along, range(depth)), *inner], reduction)
    if dupdates is not None:

        def element(*index: Index) -> Scalar:
            found = [position(held, (*index[:outer], d), doutput.shape[d]) for d in range(depth)]
            return doutput[(*found, *index[outer:])]

        _assign(dupdates, compute(shape, element))


@vjp("TensorScatter")
def tensor_scatter_vjp(
    update: Tensor,
    write_indices: Tensor | None,
    dpresent_cache: Tensor,
    dpast_cache: Output | None,
    dupdate: Output | None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> None:
    """The same for a cache; forward has seen to it that the positions are there."""
    axis = axis_of(axis, dpresent_cache.rank)
    along = cache_position(write_indices, axis, dpresent_cache.shape[axis])
    if dpast_cache is not None:
        places: list[Place] = [along if d == axis else d for d in range(dpresent_cache.rank)]
        scatter(dpast_cache, dpresent_cache, full(update.shape, 0, update.dtype), places)
    if dupdate is not None:

        def element(*index: Index) -> Scalar:
            return dpresent_cache[(*index[:axis], along(index), *index[axis + 1 :])]

        dupdate[:] = compute(update.shape, element)


@vjp("MaxUnpool", wrt="X")
def max_unpool_vjp(
    I: Tensor,  # noqa: E741  (as ONNX names it)
    doutput: Tensor,
    dX: Output,
    *,
    kernel_shape: Sequence[int],
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> None:
    """dX = dY at the positions."""
    pooled = pooled_shape(dX.shape, kernel_shape, pads, strides)
    check_positions(I, product(pooled))

    def element(*index: Index) -> Scalar:
        return doutput[unflatten_index(position(I, index, product(pooled)), pooled)]

    dX[:] = compute(dX.shape, element)


def _survivors(
    ddata: Output, doutput: Tensor, shape: tuple[Index, ...], places: list[Place], reduction: str
) -> None:
    if reduction == "add":
        ddata[:] = doutput
    else:
        scatter(ddata, doutput, full(shape, 0, ddata.dtype), places)


def _assign(dupdates: Output, value: Tensor) -> None:
    """Updates may be larger than the indices: what nobody looked at has no gradient."""
    if value.rank != dupdates.rank or any(
        str(a) != str(b) for a, b in zip(value.shape, dupdates.shape, strict=True)
    ):
        raise Refused("updates are larger than the indices")
    dupdates[:] = value

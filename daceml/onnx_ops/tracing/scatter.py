"""Scatters of lazy tensors: data copied, then updates written at positions that depend on data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from daceml.onnx_ops.tracing.indexing import Position, same
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.builder import parameters, reduced_parameters
from daceml.sdfg.scalar import Index
from daceml.sdfg.scatter import Loop, Operator, Scatter

# For each dimension of the result: the dimension of the updates that it is, or the place of an update in it.
Place = int | Callable[[tuple[Index, ...]], Position]

# Elements of a contiguous dimension that stay in one lane, so that the loop over them vectorises
_SHORTEST, _LONGEST = 16, 64


def scatter(
    result: Output, data: Tensor, updates: Tensor, places: Sequence[Place], operator: Operator = "none"
) -> None:
    """`result = data`, then `result[places(u)] = operator(result[places(u)], updates[u])` for each u in turn.

    Updates of one element run one after the other, in the row-major order of `updates`. Dimensions that
    result and updates share run in parallel. Positions must lie in the result: check them before.

    Args:
        data: broadcasts to the result.
        places: one entry for each dimension of the result; dimensions of updates that none of them names are
            looped over.
    """
    start, source = data.closed().broadcast_to(result.shape), updates.closed()
    shared = {
        d: p
        for d, p in enumerate(places)
        if isinstance(p, int) and same(result.shape[d], source.shape[p]) and not same(result.shape[d], 1)
    }
    lanes: list[Index] = []
    first: list[Index] = []  # extents of the loop that starts the elements of a lane
    target: list[Index] = []  # index of the result in terms of lanes and that loop
    run: Index = 0  # what a lane holds of the last dimension, and where that begins
    begin: Index = 0
    for d, extent in enumerate(result.shape):
        if d not in shared:
            target.append(reduced_parameters(len(first) + 1)[-1])
            first.append(extent)
        elif d < result.rank - 1:
            target.append(parameters(len(lanes) + 1)[-1])
            lanes.append(extent)
        else:
            run = _run(extent)
            if not same(run, extent):
                begin = parameters(len(lanes) + 1)[-1] * run
                lanes.append(extent // run)
            target.append(begin + reduced_parameters(len(first) + 1)[-1])
            first.append(run)
    start_loop = Loop(
        params=reduced_parameters(len(first)),
        extents=tuple(first),
        index=tuple(target) or (0,),
        value=start.at(target),
    )

    looped = [u for u in range(source.rank) if u not in shared.values()]
    extents = [source.shape[u] for u in looped]
    place_of: dict[int, Index] = dict(zip(looped, reduced_parameters(len(looped)), strict=True))
    for d, u in shared.items():
        place_of[u] = target[d]
        if d == result.rank - 1:
            # the same run, in the innermost loop of the updates
            place_of[u] = begin + reduced_parameters(len(extents) + 1)[-1]
            extents.append(run)
    update = tuple(place_of[u] for u in range(source.rank))
    index = tuple(update[p] if isinstance(p, int) else p(update) for p in places)
    trace = result.trace
    trace.computations.append(
        Scatter(
            label=trace.label,
            target=result.name,
            params=parameters(len(lanes)),
            extents=tuple(lanes),
            start=start_loop,
            updates=Loop(
                params=reduced_parameters(len(extents)),
                extents=tuple(extents),
                index=index or (0,),
                value=source.at(update),
            ),
            operator=operator,
        )
    )


def _run(extent: Index) -> Index:
    """The largest divisor of a size that makes a good run; the size itself where none does."""
    if not isinstance(extent, int):
        return extent
    return next((n for n in range(_LONGEST, _SHORTEST - 1, -1) if extent % n == 0), extent)

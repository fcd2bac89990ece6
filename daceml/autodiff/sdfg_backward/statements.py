"""What the steps of a program compute, as statements over scalar expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dace
import sympy
from dace import symbolic
from dace.sdfg import nodes

from daceml.autodiff.sdfg_backward.steps import Step
from daceml.sdfg.lifting import NotLiftable, Statement, conflict_operator, lift, lift_tasklet
from daceml.sdfg.scalar import Index, Scalar, read, reduce_over
from daceml.sdfg.scalar_rewrite import as_index, nodes_of

_POINT = tuple(symbolic.symbol(f"p{d}") for d in range(32))
_SUMMED = tuple(symbolic.symbol(f"q{d}") for d in range(32))


def step_statements(sdfg: dace.SDFG, step: Step) -> tuple[Statement, ...]:
    """The statements of a step, in their order.

    Raises:
        NotLiftable: the step is no set of statements; the message is a sentence.
    """
    match step.head:
        case None:
            return (_copy(sdfg, step),)
        case nodes.MapEntry():
            return lift(sdfg, step.state, step.head)
        case nodes.Tasklet():
            return lift_tasklet(sdfg, step.state, step.head)
        case nodes.LibraryNode() if type(step.head).__name__ == "Reduce":
            return (_reduction(sdfg, step),)
        case _:
            raise NotLiftable(f"{type(step.head).__name__} {step.head} is neither a map nor a tasklet")


def arrays_read(value: Scalar) -> set[str]:
    """Arrays that an expression reads, as data or as positions."""
    return {n.data[0] for n in nodes_of(value) if n.op in ("read", "gather")}


def sizes(subset: Any) -> tuple[Index, ...]:
    """How many elements a subset has in every dimension."""
    return tuple(as_index(symbolic.simplify(s)) for s in subset.size())


def moved_elements(
    sdfg: dace.SDFG, state: dace.SDFGState, edge: Any
) -> tuple[tuple[sympy.Basic, ...], tuple[Index, ...], tuple[Index, ...], tuple[Index, ...]]:
    """The box of a copy: its parameters and extents, and what is read and written at each point."""
    taken = edge.data.get_src_subset(edge, state)
    given = edge.data.get_dst_subset(edge, state)
    taken = _whole(sdfg, edge.src.data) if taken is None else taken
    given = _whole(sdfg, edge.dst.data) if given is None else given
    from_sizes, to_sizes = _long(taken), _long(given)
    finer, coarser = (taken, given) if len(from_sizes) > len(to_sizes) else (given, taken)
    params, extents, index = _points(finer)
    if [str(s) for _, s in from_sizes] == [str(s) for _, s in to_sizes]:
        other = _places(coarser, dict(zip((d for d, _ in _long(coarser)), params, strict=True)))
    else:
        other = _unravelled(coarser, params, extents)
    return params, extents, *((index, other) if finer is taken else (other, index))


def _copy(sdfg: dace.SDFG, step: Step) -> Statement:
    (edge,) = step.edges
    source, target = edge.src.data, edge.dst.data
    params, extents, taken, given = moved_elements(sdfg, step.state, edge)
    value = read(source, sdfg.arrays[source].dtype, taken, tuple(map(as_index, sdfg.arrays[source].shape)))
    operator = conflict_operator(edge.data.wcr)
    if operator not in (None, "sum"):
        raise NotLiftable(f"writes to {target} come together by {edge.data.wcr}")
    return Statement(
        label=f"copy_{source}_{target}", target=target, index=given, params=params, extents=extents,
        value=value, resolves=operator,
    )  # fmt: skip


def _whole(sdfg: dace.SDFG, array: str) -> Any:
    return dace.subsets.Range.from_array(sdfg.arrays[array])


def _long(subset: Any) -> list[tuple[int, Index]]:
    """Dimensions of a subset with more than one element."""
    return [(d, s) for d, s in enumerate(sizes(subset)) if str(s) != "1"]


def _points(
    subset: Any,
) -> tuple[tuple[sympy.Basic, ...], tuple[Index, ...], tuple[Index, ...]]:
    """A box of the size of a subset, and the subset's element at each point."""
    long = _long(subset)
    params = _POINT[: len(long)]
    index = _places(subset, dict(zip((d for d, _ in long), params, strict=True)))
    return params, tuple(s for _, s in long), index


def _places(subset: Any, names: Mapping[int, sympy.Basic]) -> tuple[Index, ...]:
    return tuple(
        as_index(low + names[d] * step) if d in names else as_index(low)
        for d, (low, _, step) in enumerate(subset.ranges)
    )


def _unravelled(subset: Any, params: Sequence[sympy.Basic], extents: Sequence[Index]) -> tuple[Index, ...]:
    """The element of a subset that has the same number in row-major order as a point of a box."""
    number: Index = 0
    for parameter, extent in zip(params, extents, strict=True):
        number = number * extent + parameter
    long = _long(subset)
    names: dict[int, Any] = {}
    for d, size in reversed(long):
        names[d] = number if d == long[0][0] else symbolic.pystr_to_symbolic(f"Mod({number}, {size})")
        number = symbolic.int_floor(number, size)
    return _places(subset, names)


def _reduction(sdfg: dace.SDFG, step: Step) -> Statement:
    node: Any = step.head
    (taken,) = [e for e in step.edges if e.dst is node]
    (given,) = [e for e in step.edges if e.src is node]
    source, target = taken.data.data, given.data.data
    operator = conflict_operator(node.wcr)
    if operator is None or (node.identity is None and operator != "sum"):
        raise NotLiftable(f"{node} has no value to start from")
    extents = sizes(taken.data.subset)
    axes = set(range(len(extents)) if node.axes is None else (a % len(extents) for a in node.axes))
    summed = sorted(axes)
    kept = [d for d in range(len(extents)) if d not in axes and str(extents[d]) != "1"]
    long = _long(given.data.subset)
    if [str(extents[d]) for d in kept] != [str(s) for _, s in long]:
        raise NotLiftable(f"the result of {node} has another shape than what it leaves")
    names: dict[int, Any] = dict(zip(kept, _POINT, strict=False)) | dict(zip(summed, _SUMMED, strict=False))
    desc = sdfg.arrays[source]
    body = read(
        source, desc.dtype, _places(taken.data.subset, names), tuple(map(as_index, desc.shape))
    )  # fmt: skip
    value = reduce_over(
        operator, _SUMMED[: len(summed)], [extents[d] for d in summed], body,
        accumulate=sdfg.arrays[target].dtype,
    )  # fmt: skip
    index = _places(given.data.subset, dict(zip((d for d, _ in long), _POINT, strict=False)))
    return Statement(
        label=str(node.label), target=target, index=index, params=_POINT[: len(kept)],
        extents=tuple(extents[d] for d in kept), value=value,
        resolves="sum" if node.identity is None or given.data.wcr else None,
    )  # fmt: skip

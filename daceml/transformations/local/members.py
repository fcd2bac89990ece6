"""What fusion works on: single assignments and accumulations over boxes, read off the maps of a network."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import dace
import sympy
from dace.sdfg import nodes

from daceml.sdfg.lifting import NotLiftable, Statement, lift
from daceml.sdfg.nest import Operator
from daceml.sdfg.scalar import DType, Index, Reduction, Scalar, cast, read
from daceml.sdfg.scalar_rewrite import free_names, nodes_of, replace_parts
from daceml.sdfg.tasklet_code import find_reductions

# Costs more than reading the value again from the nearest cache
_DEAR = frozenset(
    {
        *(
            "exp",
            "log",
            "log1p",
            "expm1",
            "tanh",
            "erf",
            "erfc",
            "sqrt",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
        ),
        *("sinh", "cosh", "asinh", "acosh", "atanh", "sigmoid", "div", "pow", "atan2", "floor_div"),
        *("floor_mod", "trunc_mod", "trunc_div", "int_pow", "gather", "reduce"),
    }
)
_MOST_CHEAP = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """`target[index] = value` for every point of a box, or `target[index] operator= value`.

    Attributes:
        target: array of the network, or the name of an accumulator.
        index: over `params` only.
        params, extents: the box that the target is written over.
        reduced, reduced_extents: further parameters of an accumulation.
        value: without reductions.
        operator: of an accumulation.
        dtype: element type of the target.
        shape: of the target.
    """

    label: str
    target: str
    index: tuple[Index, ...]
    params: tuple[sympy.Basic, ...]
    extents: tuple[Index, ...]
    value: Scalar
    dtype: DType
    shape: tuple[Index, ...]
    operator: Operator | None = None
    reduced: tuple[sympy.Basic, ...] = ()
    reduced_extents: tuple[Index, ...] = ()
    reads: dict[str, list[tuple[Index, ...] | None]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads", _reads(self.value))

    @property
    def operations(self) -> int:
        """What its value is made of, reads included."""
        return len(nodes_of(self.value))

    @property
    def is_cheap(self) -> bool:
        """Whether its value costs no more than reading it again."""
        return self.operations <= _MOST_CHEAP and not any(n.op in _DEAR for n in nodes_of(self.value))


def _reads(value: Scalar) -> dict[str, list[tuple[Index, ...] | None]]:
    """Array -> the indices at which it is read; None where a position is data."""
    found: dict[str, list[tuple[Index, ...] | None]] = {}
    for node in nodes_of(value):
        if node.op in ("read", "gather"):
            indices = node.data[1] if node.op == "read" else None
            known = found.setdefault(node.data[0], [])
            if indices not in known:
                known.append(indices)
    return found


def members_of(
    sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry, outside: Collection[str]
) -> tuple[Member, ...]:
    """The members that do what a top-level scope does; accumulators before what they are for.

    Args:
        outside: `arrays_outside` of the state.
    Raises:
        NotLiftable: it does something else; the message is a sentence.
    """
    found: list[Member] = []
    for statement in lift(sdfg, state, entry, outside):
        found += _split(sdfg, statement)
    return tuple(found)


def _split(sdfg: dace.SDFG, statement: Statement) -> Iterator[Member]:
    if statement.resolves is not None:
        raise NotLiftable(f"it adds to {statement.target}, element by element")
    index = statement.index
    if any(isinstance(i, Scalar) for i in index):
        raise NotLiftable(f"it writes {statement.target} at positions that depend on data")
    desc = sdfg.arrays[statement.target]
    parts: dict[int, Scalar] = {}
    box = {str(p) for p in statement.params}
    for number, reduction in enumerate(find_reductions(statement.value)):
        how: Reduction = reduction.data
        extents = [e for e in how.extents if not isinstance(e, Scalar)]
        if len(extents) < len(how.extents) or any(free_names(e) & box for e in extents):
            raise NotLiftable("how many terms it adds up differs from element to element")
        if find_reductions(reduction.args[0]):
            raise NotLiftable("it reduces inside a reduction")
        name = f"{statement.target}_acc{number}"
        yield Member(
            label=statement.label,
            target=name,
            index=statement.params or (0,),
            params=statement.params,
            extents=statement.extents,
            value=cast(reduction.args[0], reduction.dtype),
            dtype=reduction.dtype,
            shape=statement.extents or (1,),
            operator=how.operator,
            reduced=how.params,
            reduced_extents=tuple(extents),
        )
        parts[id(reduction)] = read(
            name, reduction.dtype, statement.params or (0,), statement.extents or (1,)
        )
    yield Member(
        label=statement.label,
        target=statement.target,
        index=tuple(i for i in index if not isinstance(i, Scalar)),
        params=statement.params,
        extents=statement.extents,
        value=replace_parts(statement.value, parts) if parts else statement.value,
        dtype=desc.dtype,
        shape=tuple(desc.shape),
    )


Place = tuple[str, Index]


def places(index: Sequence[Index], params: Sequence[sympy.Basic]) -> tuple[Place | None, ...]:
    """For each dimension, the parameter that alone runs along it and the offset; None where it is not so."""
    return _places(tuple(index), tuple(params))


# Passes ask for the same places of a member again and again, and equal layers for those of each other.
@lru_cache(maxsize=1 << 16)
def _places(index: tuple[Index, ...], params: tuple[sympy.Basic, ...]) -> tuple[Place | None, ...]:
    names = {str(p) for p in params}
    return tuple(_place(i, names) for i in index)


def _place(index: Index, names: set[str]) -> Place | None:
    if isinstance(index, int):
        return None
    inside = [s for s in index.free_symbols if s.name in names]
    if len(inside) != 1:
        return None
    if index == inside[0]:
        return inside[0].name, 0
    rest = sympy.expand(index - inside[0])
    if inside[0] in rest.free_symbols:
        return None
    return inside[0].name, int(rest) if rest.is_Integer else rest

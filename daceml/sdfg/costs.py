"""Static costs: bytes, floating-point operations and special functions of a kernel, from its memlets and
tasklets, and how its loops do them: side by side, one after the other, from far apart."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import lru_cache
from math import gcd
from typing import Any

import dace
import sympy
from dace.sdfg import nodes

from daceml.sdfg.loops import Loop, innermost, loop_around, shares_last, stride_along
from daceml.sdfg.rounded_division import never_negative
from daceml.sdfg.scopes import exit_among, nested_nodes, top_maps
from daceml.sdfg.sizes import Size, number, product, size
from daceml.sdfg.touched_elements import touched

# Each counts as one special function, not as one flop: its price depends on the target.
SPECIAL_FUNCTIONS = frozenset(
    {
        *("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "pow"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        *("erf", "erfc", "sigmoid", "softplus", "gelu"),
    }
)

# What a function takes, in tenths of those of its kind, in loops that vector instructions do.
# Source: `vector_math.h` and gcc 12 on an AMD EPYC with 512-bit vectors, 16,384 float32 in the nearest cache.
_TENTHS: Mapping[str, Mapping[str, int]] = {
    **{name: {"exponential_tenths": 10} for name in ("exp", "exp2")},
    **{name: {"exponential_tenths": 12} for name in ("expm1", "tanh")},
    "sigmoid": {"exponential_tenths": 10, "division_tenths": 10},
    **{name: {"logarithm_tenths": 10} for name in ("log", "log1p", "log2", "log10")},
    "softplus": {"exponential_tenths": 10, "logarithm_tenths": 10},
    **{name: {"error_function_tenths": 10} for name in ("erf", "erfc", "gelu")},
    "sqrt": {"division_tenths": 12},
    "rsqrt": {"division_tenths": 17},
}
_DEAR = {"power_tenths": 10}
_DIVISION = {"division_tenths": 10}
_SCALAR_TIMES = 8  # as long does a function take where vector instructions do not help

_LANES = 16  # iterations around another loop that vector instructions do at once, at the most
_DECIDING = SPECIAL_FUNCTIONS - {"sqrt", "rsqrt"} | {"max", "min"}  # what has branches inside

FUNCTION_KINDS = tuple(dict.fromkeys(kind for kinds in (*_TENTHS.values(), _DEAR) for kind in kinds))
"""Those fields of `Cost` that say how long functions take."""

STREAM = "stream"
"""Label of tasklets that write past the caches; `transformations/hardware/streamed_stores.py` makes them."""

TILE = "tile"
"""Label of tasklets that read a tile across memory; `transformations/hardware/tiled_reads.py` makes them."""

# Half a page: processors fetch ahead of loops that make shorter steps, and not beyond a page. So long steps
# fill few sets of the nearest cache, too; this many iterations fit whatever the step.
_PREFETCHED_BYTES, _WAYS = 2048, 8
_SETS_BYTES, _LINE_BYTES = 4096, 64


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one execution moves and computes.

    Attributes:
        unique_bytes: every byte touched in memory counted once, also where it is read and written; the floor
            that a perfect cache reaches. Never more than total_bytes.
        total_bytes: every access counted; what a cache-less machine moves.
        flops: additions, multiplications, divisions, comparisons and selections on floating-point numbers.
        special_functions: calls of exp, log, tanh, erf, sqrt, …
        exponential_tenths, logarithm_tenths, error_function_tenths, division_tenths, power_tenths: how long
            these and divisions take, in tenths of an exp, log, erf, division and pow in loops over
            neighbours.
        streamed_bytes: of the unique ones, those that are written past the caches.
        vector_operations: loads, stores, flops and special functions in innermost loops over neighbours in
            memory, whose iterations do not wait for each other: vector instructions do several at once. So
            they do where that holds of the map's last loop, whatever loop goes on inside, unless something is
            decided there, but for iterations that fill no vector.
        scalar_operations: the same in all other loops.
        dependent_operations: those of them that wait for the iteration before, as sums do.
        strided_accesses: loads and stores half a page or more from that of the iteration before, or nobody
            knows how far: each waits for a line of its own, unless all lines of the loop stay in the nearest
            cache until it comes back for their neighbours.
        loop_starts: how often an innermost loop begins.
    """

    unique_bytes: Size = 0
    total_bytes: Size = 0
    flops: Size = 0
    special_functions: Size = 0
    exponential_tenths: Size = 0
    logarithm_tenths: Size = 0
    error_function_tenths: Size = 0
    division_tenths: Size = 0
    power_tenths: Size = 0
    streamed_bytes: Size = 0
    vector_operations: Size = 0
    scalar_operations: Size = 0
    dependent_operations: Size = 0
    strided_accesses: Size = 0
    loop_starts: Size = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def mapped(self, change: Callable[[Size], Size]) -> Cost:
        """Each amount changed by a function."""
        return Cost(**{f.name: change(getattr(self, f.name)) for f in fields(self)})

    def at(self, symbols: Mapping[str, int]) -> Cost:
        """The cost at given values of the symbols."""
        return self.mapped(lambda amount: number(amount, symbols))


def function_cost(name: str, times: Size) -> Cost:
    """Cost of a special function, called so many times in a loop over neighbours."""
    tenths = {kind: count * times for kind, count in _TENTHS.get(name, _DEAR).items()}
    return Cost(special_functions=times, **tenths)


def kernel_cost(sdfg: dace.SDFG) -> Cost:
    """Cost of a kernel SDFG: one state, one top-level map over arrays that are not transient."""
    (state,) = sdfg.states()
    (entry,) = top_maps(state)
    return scope_cost(sdfg, state, entry)


def scope_cost(sdfg: dace.SDFG, state: dace.SDFGState, entry: nodes.MapEntry) -> Cost:
    """Cost of a top-level map; what is only inside of it does not count as memory."""
    boxes: dict[str, dict[str, Size]] = {}
    regions: dict[str, dict[tuple[str, ...], Size] | None] = {}  # None where one access is not known exactly
    accessed: dict[str, Size] = {}
    total: Size = 0
    flops: Size = 0
    special: Size = 0
    nested = nested_nodes(state, entry)
    scopes: dict[Any, Any] = {entry: None}
    for around, children in nested.items():
        scopes |= dict.fromkeys(children, around)
    inside = list(scopes)
    end = exit_among(nested[entry], entry)
    first, last = state.in_edges(entry), state.out_edges(end)
    memory: set[Any] = {e.data.data for e in (*first, *last)}
    loops: dict[Loop, _LoopCost] = {}
    last_loop = innermost(entry)
    # whether iterations of the last loop can run side by side: those that threads share out do not, nor those
    # around loops in loops, which compilers do not turn inside out, nor those around a loop beside which
    # something is decided: gcc 12 turns decisions into selections in innermost loops only
    depth = _depth(entry, nested)
    across = last_loop.extent != 1 and not shares_last(entry) and depth <= 1
    streamed: Size = 0
    edges: list[Any] = [*first, *(e for n in inside if n is not end for e in state.out_edges(n)), *last]
    for edge in edges:
        array = edge.data.data
        if edge.data.is_empty() or array is None:
            continue
        desc = sdfg.arrays[array]
        outer = isinstance(edge.src, nodes.AccessNode) or isinstance(edge.dst, nodes.AccessNode)
        if outer and array in memory:
            box: Any = edge.data.subset
            boxes.setdefault(array, {})[str(box)] = size(box.num_elements())
        if isinstance(edge.src, nodes.Tasklet) and edge.src.label == STREAM and array in memory:
            streamed = streamed + _in_all(size(edge.data.volume), edge.src, scopes) * desc.dtype.bytes
        tasklet = edge.dst if isinstance(edge.dst, nodes.Tasklet) else edge.src
        hint = (
            isinstance(edge.dst, nodes.Tasklet)
            and edge.dst.language is dace.Language.CPP
            and edge.dst.label != TILE
        )
        if isinstance(tasklet, nodes.Tasklet) and array in memory and not hint:
            per_run = size(edge.data.volume) if not edge.data.dynamic else 1
            times = _in_all(per_run, tasklet, scopes)
            total = total + times * desc.dtype.bytes
            accessed[array] = accessed.get(array, 0) + times
            known = regions.setdefault(array, {})
            region = None if edge.data.dynamic else touched(edge.data.subset, _around(tasklet, scopes))
            if known is None or region is None:
                regions[array] = None
            else:
                known[region.key] = region.elements
            loop = loop_around(tasklet, scopes)
            stride = stride_along(loop, edge.data, desc)
            neighbours = stride_along(last_loop, edge.data, desc) in (0, 1)
            _within(loops, loop).access(
                times, stride, loop.extent, desc.dtype.bytes, again=neighbours and loop != last_loop
            )
            across = across and neighbours
        if edge.data.wcr is not None and isinstance(edge.src, nodes.Tasklet):
            times = _in_all(1, edge.src, scopes)
            flops = flops + times
            loop = loop_around(edge.src, scopes)
            _within(loops, loop).update(times, stride_along(loop, edge.data, desc))
    for tasklet in inside:
        # C++ moves what others compute
        if not isinstance(tasklet, nodes.Tasklet) or tasklet.language is not dace.Language.Python:
            continue
        times = _in_all(1, tasklet, scopes)
        operations, functions, tenths, decides = _count(tasklet.code.as_string)
        across = across and not (depth and decides)
        flops, special = flops + times * operations, special + times * functions
        loop = loop_around(tasklet, scopes)
        cost = _within(loops, loop)
        cost.compute(times, operations + functions, tenths, _own_result(sdfg, state, tasklet, loop))
    unique = {
        array: _unique(found, regions.get(array), accessed.get(array), sdfg.arrays[array])
        for array, found in boxes.items()
    }
    left_over = _left_over(last_loop.extent) if depth else Fraction(0)
    # of each loop's work, what is done one by one
    shares = [
        (cost, left_over if across else Fraction(0 if cost.side_by_side else 1)) for cost in loops.values()
    ]
    operations = sum((cost.operations for cost in loops.values()), start=0)
    scalar = sum((_part(cost.operations, share) for cost, share in shares), start=0)
    functions_of = {
        kind: sum(
            (
                cost.tenths.get(kind, 0) + (_SCALAR_TIMES - 1) * _part(cost.tenths.get(kind, 0), share)
                for cost, share in shares
            ),
            start=0,
        )
        for kind in FUNCTION_KINDS
    }
    return Cost(
        unique_bytes=sum(unique.values(), start=0),
        total_bytes=total,
        flops=flops,
        special_functions=special,
        **functions_of,
        streamed_bytes=_at_most(streamed, sum(unique.values(), start=0)),
        vector_operations=operations - scalar,
        scalar_operations=scalar,
        dependent_operations=sum((_part(cost.dependent, share) for cost, share in shares), start=0),
        strided_accesses=sum((_part(cost.strided, share) for cost, share in shares), start=0),
        loop_starts=sum((_starts(loop, cost.runs, scopes) for loop, cost in loops.items()), start=0),
    )


@dataclass
class _LoopCost:
    """What is done in an innermost loop, over all its iterations."""

    operations: Size = 0
    tenths: dict[str, Size] = field(default_factory=dict[str, Size])
    strided: Size = 0
    dependent: Size = 0
    runs: Size = 0
    side_by_side: bool = True

    def access(self, times: Size, stride: Size | None, extent: Size, item_bytes: int, *, again: bool) -> None:
        """Loads or stores; the stride is in elements, None where nobody knows it.

        Args:
            again: whether the loop comes back at once, to neighbours of the same elements.
        """
        self.operations = self.operations + times
        if stride in (0, 1):
            return
        self.side_by_side = False
        known = isinstance(stride, int)
        short = known and abs(stride) * item_bytes < _PREFETCHED_BYTES
        kept = _WAYS * (_sets(abs(stride) * item_bytes) if known and again else 1)
        if not short and not (isinstance(extent, int) and extent <= kept):
            self.strided = self.strided + times

    def update(self, times: Size, stride: Size | None) -> None:
        """Additions to what is in memory, or in a scalar."""
        self.operations = self.operations + times
        if stride != 1:
            self.side_by_side = False
            self.dependent = self.dependent + times

    def compute(self, times: Size, operations: int, tenths: Mapping[str, int], follows_itself: bool) -> None:
        """One tasklet."""
        self.operations, self.runs = self.operations + times * operations, _at_least(self.runs, times)
        for kind, count in tenths.items():
            self.tenths[kind] = self.tenths.get(kind, 0) + times * count
        if follows_itself:
            self.side_by_side = False
            self.dependent = self.dependent + times


def _around(tasklet: nodes.Tasklet, scopes: Mapping[Any, Any]) -> Iterator[nodes.MapEntry]:
    entry = scopes[tasklet]
    while entry is not None:
        yield entry
        entry = scopes[entry]


def _unique(
    boxes: Mapping[str, Size],
    regions: Mapping[tuple[str, ...], Size] | None,
    accesses: Size | None,
    desc: dace.data.Data,
) -> Size:
    """Bytes of an array that a kernel touches: no more than it has, than are around its accesses, than these
    touch, and than there are accesses.

    Args:
        boxes: around all accesses of one kind, by their text; the same box is read and written in place.
        regions: elements that each access touches; None where that is not known.
        accesses: None where nothing counts them.
    """
    found = _at_most(sum(boxes.values(), start=0), product(map(size, desc.shape)))
    if regions:
        found = _at_most(found, sum(regions.values(), start=0))
    if accesses is not None:
        found = _at_most(found, accesses)
    return found * desc.dtype.bytes


def _sets(step_bytes: int) -> int:
    """Of the nearest cache, those in which the lines of a loop with such steps lie."""
    return min(_SETS_BYTES // gcd(step_bytes, _SETS_BYTES), _SETS_BYTES // _LINE_BYTES)


def _left_over(extent: Size) -> Fraction:
    """The share of iterations that fill no vector: of 7, three, as the compiler takes four at once."""
    if not isinstance(extent, int) or extent < 1:
        return Fraction(0)
    lanes = min(_LANES, 1 << (extent.bit_length() - 1))
    return Fraction(extent % lanes, extent) if lanes > 2 else Fraction(1)


def _part(amount: Size, share: Fraction) -> Size:
    """A share of an amount, rounded down where it is a number."""
    if isinstance(amount, int):
        return amount * share.numerator // share.denominator
    return size(amount * sympy.Rational(share.numerator, share.denominator))


def _depth(entry: nodes.MapEntry, nested: Mapping[Any, Sequence[Any]]) -> int:
    """How many loops of more than one iteration stand in each other inside a map, at the most."""
    return max(
        (
            sum(extent != 1 for extent in inner.map.range.size()) + _depth(inner, nested)
            for inner in nested[entry]
            if isinstance(inner, nodes.MapEntry)
        ),
        default=0,
    )


def _within(loops: dict[Loop, _LoopCost], loop: Loop) -> _LoopCost:
    return loops.setdefault(loop, _LoopCost())


def _own_result(sdfg: dace.SDFG, state: dace.SDFGState, tasklet: nodes.Tasklet, loop: Loop) -> bool:
    """Whether an iteration reads what the one before it has written."""
    read = {(e.data.data, str(e.data.subset)) for e in state.in_edges(tasklet) if e.data.data is not None}
    written = [e.data for e in state.out_edges(tasklet) if e.data.data is not None]
    return any(
        (memlet.data, str(memlet.subset)) in read
        and stride_along(loop, memlet, sdfg.arrays[memlet.data]) == 0
        for memlet in written
    )


def _starts(loop: Loop, runs: Size, scopes: Mapping[Any, Any]) -> Size:
    extent, around = loop.extent, loop.entry
    while around is not None:
        extent, around = _averaged(extent, around), scopes[around]
    if isinstance(extent, int) and isinstance(runs, int):
        return runs // max(extent, 1)
    if not never_negative(extent - 1):
        extent = sympy.Max(extent, 1)  # a loop that may be empty, as one over a padding
    return size(sympy.sympify(runs) / extent)


def _at_least(one: Size, other: Size) -> Size:
    if isinstance(one, int) and isinstance(other, int):
        return max(one, other)
    smaller = _smaller(one, other)
    if smaller is not None:
        return other if smaller is one else one
    return sympy.Max(one, other, evaluate=False)


def _in_all(amount: Size, tasklet: nodes.Tasklet, scopes: Mapping[Any, Any]) -> Size:
    """An amount of one run of a tasklet, over all runs."""
    entry = scopes[tasklet]
    while entry is not None:
        amount = _averaged(amount, entry) * product(size(s) for s in entry.map.range.size())
        entry = scopes[entry]
    return amount


def _averaged(amount: Size, entry: nodes.MapEntry) -> Size:
    """What depends on this map's parameters, at their middle; a range that is data counts once. The last of
    several blocks may be a shorter one.
    """
    if isinstance(amount, int):
        return amount
    names = {str(symbol) for symbol in amount.free_symbols}
    if "_length" not in names and names.isdisjoint(entry.map.params):
        return size(amount)
    values: list[tuple[Any, Any]] = []
    for name, (low, high, step), count in zip(
        entry.map.params, entry.map.range, entry.map.range.size(), strict=True
    ):
        p: Any = dace.symbolic.symbol(name)
        if step != 1:
            values.append((sympy.Min(step, high + 1 - p), (high + 1 - low) / sympy.sympify(count)))
        values.append((p, (low + high) / 2))
    values += [(s, 1) for s in amount.free_symbols if str(s) == "_length"]
    return size(amount.subs(values))


def _at_most(amount: Size, limit: Size) -> Size:
    if isinstance(amount, int) and isinstance(limit, int):
        return min(amount, limit)
    smaller = _smaller(amount, limit)
    return sympy.Min(amount, limit, evaluate=False) if smaller is None else smaller


def _smaller(one: Size, other: Size) -> Size | None:
    """Whichever of two amounts is never the larger one; None where that depends on the symbols.

    SymPy's own search would take most of the time of all costs.
    """
    if never_negative(other - one):
        return one
    return other if never_negative(one - other) else None


def special_functions(tasklet: nodes.Tasklet) -> frozenset[str]:
    """Names of the special functions that a tasklet computes; none of one in C++."""
    if tasklet.language is not dace.dtypes.Language.Python:
        return frozenset()
    calls = [node.func for node in ast.walk(ast.parse(tasklet.code.as_string)) if isinstance(node, ast.Call)]
    return SPECIAL_FUNCTIONS & {call.id for call in calls if isinstance(call, ast.Name)}


@lru_cache(maxsize=4096)
def _count(code: str) -> tuple[int, int, Mapping[str, int], bool]:
    """Operations, special functions, what these take, by kind, and whether anything is decided."""
    operations = functions = 0
    tenths: Counter[str] = Counter()
    decides = False
    for node in ast.walk(ast.parse(code)):
        decides = decides or isinstance(node, ast.Compare | ast.IfExp)
        if isinstance(node, ast.BinOp | ast.Compare | ast.IfExp) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        ):
            operations += 1
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                tenths.update(_DIVISION)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            decides = decides or node.func.id in _DECIDING
            if node.func.id in SPECIAL_FUNCTIONS:
                functions += 1
                tenths.update(_TENTHS.get(node.func.id, _DEAR))
            else:
                operations += 1  # max, min, abs, …
    return operations, functions, tenths, decides

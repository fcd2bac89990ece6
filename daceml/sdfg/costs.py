"""Static costs: bytes, floating-point operations and special functions of a kernel, from its memlets and
tasklets."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import dace
import sympy
from dace.sdfg import nodes

from daceml.sdfg.sizes import Size, product, size

# Each counts as one special function, not as one flop: its price depends on the target.
SPECIAL_FUNCTIONS = frozenset(
    {
        *("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "pow"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        *("erf", "erfc", "sigmoid", "softplus", "gelu"),
    }
)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one execution moves and computes.

    Attributes:
        unique_bytes: every byte touched in memory counted once; the floor that a perfect cache reaches.
        total_bytes: every access counted; what a cache-less machine moves.
        flops: additions, multiplications, divisions, comparisons and selections on floating-point numbers.
        special_functions: calls of exp, log, tanh, erf, sqrt, …
    """

    unique_bytes: Size = 0
    total_bytes: Size = 0
    flops: Size = 0
    special_functions: Size = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def mapped(self, change: Callable[[Size], Size]) -> Cost:
        """Each amount changed by a function."""
        return Cost(**{f.name: change(getattr(self, f.name)) for f in fields(self)})

    def at(self, symbols: Mapping[str, int]) -> Cost:
        """The cost at given values of the symbols."""

        def value(amount: Size) -> Size:
            if isinstance(amount, int):
                return amount
            return int(amount.subs({s: symbols[str(s)] for s in amount.free_symbols}))

        return self.mapped(value)


def kernel_cost(sdfg: dace.SDFG) -> Cost:
    """Cost of a kernel SDFG: one state, one top-level map over arrays that are not transient."""
    (state,) = sdfg.states()
    unique: dict[str, Size] = {}
    total: Size = 0
    flops: Size = 0
    special: Size = 0
    iterations = _iterations(state)
    for edge in state.edges():
        if edge.data.is_empty() or edge.data.data is None:
            continue
        desc = sdfg.arrays[edge.data.data]
        outer = isinstance(edge.src, nodes.AccessNode) or isinstance(edge.dst, nodes.AccessNode)
        if outer and not desc.transient:
            box: Any = edge.data.subset
            moved = size(box.num_elements()) * desc.dtype.bytes
            name = edge.data.data
            unique[name] = _at_most(
                unique.get(name, 0) + moved, product(map(size, desc.shape)) * desc.dtype.bytes
            )
        tasklet = edge.dst if isinstance(edge.dst, nodes.Tasklet) else edge.src
        if isinstance(tasklet, nodes.Tasklet) and not desc.transient:
            per_run = size(edge.data.volume) if not edge.data.dynamic else 1
            total = total + iterations[tasklet] * per_run * desc.dtype.bytes
        if edge.data.wcr is not None and isinstance(edge.src, nodes.Tasklet):
            flops = flops + iterations[edge.src]
    for tasklet, times in iterations.items():
        operations, functions = _count(tasklet.code.as_string)
        flops, special = flops + times * operations, special + times * functions
    return Cost(
        unique_bytes=sum(unique.values(), start=0), total_bytes=total, flops=flops, special_functions=special
    )


def _iterations(state: dace.SDFGState) -> dict[nodes.Tasklet, Size]:
    scopes = state.scope_dict()
    result: dict[nodes.Tasklet, Size] = {}
    for node in state.nodes():
        if not isinstance(node, nodes.Tasklet):
            continue
        times: Size = 1
        entry: Any = scopes[node]
        while entry is not None:
            times = _averaged(times, entry) * product(size(s) for s in entry.map.range.size())
            entry = scopes[entry]
        result[node] = times
    return result


def _averaged(times: Size, entry: nodes.MapEntry) -> Size:
    """Iterations that depend on this map's parameters, at their middle; a range that is data counts once."""
    if isinstance(times, int):
        return times
    middle = {
        p: (low + high) / 2 for p, (low, high, _) in zip(entry.map.params, entry.map.range, strict=True)
    }
    values = {s: middle.get(str(s), 1) for s in times.free_symbols if str(s) in middle or str(s) == "_length"}
    return size(times.subs(list(values.items())))


def _at_most(amount: Size, limit: Size) -> Size:
    if isinstance(amount, int) and isinstance(limit, int):
        return min(amount, limit)
    smaller = sympy.Min(amount, limit)
    return int(smaller) if smaller.is_Integer else smaller


@lru_cache(maxsize=4096)
def _count(code: str) -> tuple[int, int]:
    operations = functions = 0
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.BinOp | ast.Compare | ast.IfExp) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        ):
            operations += 1
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in SPECIAL_FUNCTIONS:
                functions += 1
            else:
                operations += 1  # max, min, abs, …
    return operations, functions

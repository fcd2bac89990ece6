"""The adjoint of one statement: what flows back to every array that it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import dace
import sympy
from dace import symbolic

from daceml.autodiff.inversion import NotInvertible, at_least, gathered
from daceml.autodiff.scalar_derivatives import LeafCotangent, derivative
from daceml.errors import GradientError
from daceml.sdfg.builder import parameters, reduced_parameters, span
from daceml.sdfg.lifting import Statement
from daceml.sdfg.scalar import (
    FLOATS,
    DType,
    Index,
    Reduction,
    Scalar,
    apply,
    cast,
    compute_type,
    index_value,
    literal,
    read,
    reduce_over,
)
from daceml.sdfg.scalar_rewrite import (
    as_index,
    contains,
    free_names,
    nodes_of,
    rebuilt,
    rename,
    replace_parts,
    substitute,
)
from daceml.sdfg.scatter import Loop, Scatter
from daceml.sdfg.tasklet_code import find_reductions


@dataclass(frozen=True, kw_only=True)
class Flow:
    """A part of the gradient of an array.

    Attributes:
        array: whose gradient.
        value: over `i0, i1, …` in the array's shape, with at most one reduction; None for a scatter.
        scatter: writes the part into an array of that name.
    """

    array: str
    value: Scalar | None = None
    scatter: Callable[[str], Scatter] | None = None


@dataclass(frozen=True, kw_only=True)
class Forward:
    """What an adjoint may ask of the forward pass.

    Attributes:
        arrays: descriptors by name.
        wanted: arrays that gradients flow to.
        hold: computes something once more than the forward pass does: (what, shape, element type, value over
            `i0, …`) -> array.
        keeps_result: whether a result may be read again, instead of computing it again.
    """

    arrays: Mapping[str, dace.data.Data]
    wanted: frozenset[str]
    hold: Callable[[str, Sequence[Index], DType, Scalar], str]
    keeps_result: bool = True

    def shape(self, array: str) -> tuple[Index, ...]:
        """Sizes of an array."""
        return tuple(self.arrays[array].shape)

    def matters(self, leaf: Scalar) -> bool:
        """Whether a gradient flows to an element, or into a reduction."""
        if leaf.op == "reduce":
            return any(n.op in ("read", "gather") and self.matters(n) for n in nodes_of(leaf.args[0]))
        return leaf.data[0] in self.wanted and leaf.dtype in FLOATS


def adjoint(statement: Statement, cotangent: str, forward: Forward) -> list[Flow]:
    """What a statement gives to the gradients of the arrays that it reads.

    Args:
        cotangent: array with the gradient of the statement's target.
    Raises:
        GradientError: a part of the statement has no derivative.
    """
    return _Adjoint(statement, cotangent, forward).run()


class _Adjoint:
    def __init__(self, statement: Statement, cotangent: str, forward: Forward) -> None:
        self.statement, self.forward = statement, forward
        self.box: dict[str, Index] = {
            str(p): e for p, e in zip(statement.params, statement.extents, strict=True)
        }
        target, index = statement.target, statement.index
        dtype, shape = forward.arrays[target].dtype, forward.shape(target)
        self.up = read(cotangent, dtype, index, shape)
        again = forward.keeps_result and statement.resolves is None
        self.result = read(target, dtype, index, shape) if again else None
        self.flows: list[Flow] = []

    def run(self) -> list[Flow]:
        value = self.statement.value
        found = derivative(value, self.up, self.forward.matters, self.result)
        totals = {
            id(r): self._total(r)
            for r in find_reductions(value)
            if any(contains(f.cotangent, r) for f in found) or (r.data.operator != "sum" and _has(found, r))
        }
        found = tuple(LeafCotangent(leaf=f.leaf, cotangent=replace_parts(f.cotangent, totals)) for f in found)
        self._flow([f for f in found if f.leaf.op != "reduce"], self.box)
        for f in found:
            if f.leaf.op == "reduce":
                self._into(f.leaf, f.cotangent, totals.get(id(f.leaf)))
        return self.flows

    def _total(self, reduction: Scalar) -> Scalar:
        """The value of a reduction, read from memory: from the target if it is just that."""
        value = self.statement.value
        while value.op == "cast" and value is not reduction:
            value = value.args[0]
        exact = reduction.data.operator in ("max", "min") or self.statement.value is reduction
        if value is reduction and exact and self.result is not None:
            return cast(self.result, compute_type(reduction.dtype))
        return self._held("total", reduction)

    def _held(self, what: str, value: Scalar) -> Scalar:
        """A value over the statement's box, computed into an array of its own."""
        params, extents = self.statement.params, self.statement.extents
        reductions = find_reductions(value)
        inner = [p for r in reductions for p in r.data.params]
        names = dict(zip(map(str, params), parameters(len(params)), strict=True))
        names |= dict(zip(map(str, inner), reduced_parameters(len(inner)), strict=True))
        array = self.forward.hold(
            f"{self.statement.target}_{what}", extents or (1,), value.dtype, substitute(value, names)
        )
        return read(array, value.dtype, params or (0,), extents or (1,))

    def _into(self, reduction: Scalar, up: Scalar, total: Scalar | None) -> None:
        """What flows into the body of a reduction."""
        how: Reduction = reduction.data
        body = reduction.args[0]
        if how.operator != "sum" and any(isinstance(e, Scalar) for e in how.extents):
            raise self._refusal("its length is data")
        if how.operator == "sum":
            seed = up
        elif how.operator == "prod":
            seed = self._of_product(reduction, up)
        else:
            assert total is not None, "an extremum is compared with its total"
            seed = self._of_extremum(reduction, up, cast(total, body.dtype))
        box = dict(self.box)
        seed = cast(seed, compute_type(body.dtype))
        conditions: list[Scalar] = []
        for parameter, extent in zip(how.params, how.extents, strict=True):
            # a triangle, or a length that is data, becomes a rectangle with a condition
            if isinstance(extent, Scalar):
                body, box[str(parameter)] = self._kept_inside(body, parameter)
                conditions.append(apply("lt", index_value(parameter), extent))
            elif free_names(extent) & self.box.keys():
                box[str(parameter)] = self._largest(extent)
                conditions.append(apply("lt", index_value(parameter), index_value(extent)))
                self._stays_inside(body, parameter, box)
            else:
                box[str(parameter)] = extent
        found = derivative(body, seed, self.forward.matters)
        for inside in conditions:
            # what flows back, not the seed: a factor outside the condition may be no number
            found = [LeafCotangent(leaf=f.leaf, cotangent=_where(inside, f.cotangent)) for f in found]
        self._flow(found, box)

    def _kept_inside(self, body: Scalar, parameter: Index) -> tuple[Scalar, Index]:
        """The body of a reduction whose length is data, with positions that stay in their arrays, and the
        most elements that it can have: as many as the shortest array that it goes along."""
        name, lengths = str(parameter), dict[str, Index]()

        def inside(node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
            args_inside = [*args]
            if node.op == "read" and any(name in free_names(i) for i in node.data[1]):
                raise self._refusal(f"its length is data, and {node.data[0]} is read from a fixed place")
            if node.op == "gather":
                dynamic = [d for d, i in enumerate(node.data[1]) if i is None]
                for n, d in enumerate(dynamic):
                    if _goes_along(node.args[n], name):
                        length = as_index(node.data[2][d])
                        lengths[str(length)] = length
                        last = index_value(as_index(length - 1), args[n].dtype)
                        args_inside[n] = apply("min", args[n], last)
            return Scalar(node.op, node.dtype, tuple(args_inside), node.data)

        moved = rebuilt(body, inside)
        whole = [length for length in lengths.values() if isinstance(length, int)]
        if not lengths:
            raise self._refusal("its length is data, and no array says how long it may be")
        return moved, min(whole) if whole else next(iter(lengths.values()))

    def _largest(self, extent: Index) -> Index:
        params = zip(self.statement.params, self.statement.extents, strict=True)
        bounds = span(extent, dict(params))
        if bounds is None:
            raise self._refusal(f"the extent {extent} of a reduction is not affine")
        return bounds[1]

    def _stays_inside(self, body: Scalar, parameter: Index, box: Mapping[str, Index]) -> None:
        """No read may leave its array where the condition of a triangle is false."""
        ranges: dict[sympy.Basic, Index | Scalar] = {symbolic.symbol(p): e for p, e in box.items()}
        for node in nodes_of(body):
            if node.op not in ("read", "gather"):
                continue
            for index, extent in zip(node.data[1], self.forward.shape(node.data[0]), strict=True):
                if index is None or str(parameter) not in free_names(index):
                    continue
                bounds = span(index, ranges)
                if bounds is None or not (at_least(bounds[0], 0) and at_least(extent - 1, bounds[1])):
                    raise self._refusal(f"{node.data[0]} may be read outside it")

    def _refusal(self, why: str) -> GradientError:
        return GradientError(
            "a reduction has no symbolic derivative",
            where=self.statement.label,
            why=why,
            fix="give the operator a @vjp rule",
        )

    def _sum_of(self, what: str, reduction: Scalar, operator: str, value: Scalar) -> Scalar:
        how: Reduction = reduction.data
        return self._held(what, reduce_over(operator, how.params, how.extents, value))  # pyright: ignore

    def _of_extremum(self, reduction: Scalar, up: Scalar, total: Scalar) -> Scalar:
        """Elements that equal the extremum share its gradient; where it is NaN, theirs is, as in torch."""
        body = reduction.args[0]
        one, none = literal(1.0, up.dtype), literal(0.0, up.dtype)
        hit = apply("eq", body, total)
        count = self._sum_of("ties", reduction, "sum", apply("where", hit, one, none))
        share = up / cast(count, up.dtype)
        return apply("where", hit, share, share * none)

    def _of_product(self, reduction: Scalar, up: Scalar) -> Scalar:
        """The product of the others: without a division where one of them is zero."""
        body = cast(reduction.args[0], compute_type(reduction.args[0].dtype))
        one, none = literal(1.0, body.dtype), literal(0.0, body.dtype)
        flat = apply("eq", body, 0.0)
        zeros = cast(self._sum_of("zeros", reduction, "sum", apply("where", flat, one, none)), up.dtype)
        others = cast(self._sum_of("others", reduction, "prod", apply("where", flat, one, body)), up.dtype)
        body, flat_none = cast(body, up.dtype), literal(0.0, up.dtype)
        plain = apply("where", apply("eq", zeros, 0.0), up * others / body, flat_none)
        alone = apply("where", apply("eq", zeros, 1.0), up * others, flat_none)
        return apply("where", flat, alone, plain)

    def _flow(self, found: Sequence[LeafCotangent], box: dict[str, Index]) -> None:
        """Terms of elements into flows of arrays; terms of one and the same element are added first."""
        terms: dict[tuple[object, ...], tuple[Scalar, Scalar]] = {}
        for f in found:
            key = (f.leaf.op, *map(str, f.leaf.data[:2])) if f.leaf.op == "read" else (id(f.leaf),)
            before = terms.get(key)
            terms[key] = (f.leaf, f.cotangent if before is None else before[1] + f.cotangent)
        for leaf, term in terms.values():
            array = leaf.data[0]
            if leaf.op == "read":
                try:
                    value = gathered(
                        self.forward.shape(array), leaf.data[1], box, term, leaf.dtype, self.forward.shape
                    )
                except NotInvertible:
                    pass
                else:
                    self.flows.append(Flow(array=array, value=value))
                    continue
            self.flows.append(Flow(array=array, scatter=_Scattered(leaf, term, box, self.forward).into))


def _where(condition: Scalar, value: Scalar) -> Scalar:
    return apply("where", condition, value, literal(0.0, value.dtype))


def _goes_along(position: Scalar, name: str) -> bool:
    """Whether a position is a parameter and a start, which needs no lookup."""
    match position.op:
        case "cast":
            return _goes_along(position.args[0], name)
        case "add":
            return any(_goes_along(a, name) for a in position.args)
        case "index":
            rest = [s for s in position.data.free_symbols if str(s) == name]
            return bool(rest) and name not in free_names(as_index(position.data - rest[0]))
        case _:
            return False


def _has(found: Sequence[LeafCotangent], leaf: Scalar) -> bool:
    return any(f.leaf is leaf for f in found)


@dataclass(frozen=True)
class _Scattered:
    """The adjoint of a read at positions that depend on data: summed in order, in independent lanes."""

    leaf: Scalar
    term: Scalar
    box: Mapping[str, Index]
    forward: Forward

    def into(self, target: str) -> Scatter:
        array = self.leaf.data[0]
        shape = self.forward.shape(array)
        given = iter(self.leaf.args)
        known = self.leaf.data[1]
        index: list[Index | Scalar] = [next(given) if i is None else i for i in known]
        lanes = {d: str(i) for d, i in enumerate(index) if self._is_lane(d, index, shape)}
        places = parameters(len(shape))
        lane_places = [places[d] for d in lanes]
        rest = [d for d in range(len(shape)) if d not in lanes]
        left = [p for p in self.box if p not in lanes.values()]
        names: dict[str, Index] = {name: places[d] for d, name in lanes.items()}
        names |= dict(zip(left, reduced_parameters(len(left)), strict=True))
        moved: list[Index | Scalar] = []
        for i in index:
            if isinstance(i, Scalar):
                moved.append(substitute(i, names))
            elif isinstance(i, int | sympy.Symbol):
                moved.append(rename(i, names))
            else:
                moved.append(index_value(rename(i, names)))
        dtype = self.leaf.dtype
        return Scatter(
            label=f"{array}_gradient",
            target=target,
            params=tuple(lane_places),
            extents=tuple(shape[d] for d in lanes),
            start=Loop(
                params=tuple(places[d] for d in rest),
                extents=tuple(shape[d] for d in rest),
                index=tuple(places),
                value=literal(0.0, dtype),
            ),
            updates=Loop(
                params=reduced_parameters(len(left)),
                extents=tuple(self.box[p] for p in left),
                index=tuple(moved),
                value=cast(substitute(self.term, names), compute_type(dtype)),
            ),
            operator="add",
        )

    def _is_lane(self, d: int, index: Sequence[Index | Scalar], shape: Sequence[Index]) -> bool:
        i = index[d]
        if isinstance(i, Scalar | int) or str(i) not in self.box or str(self.box[str(i)]) != str(shape[d]):
            return False
        elsewhere: set[str] = set()
        for other, j in enumerate(index):
            if other == d:
                continue
            elsewhere |= (
                free_names(j)
                if not isinstance(j, Scalar)
                else set().union(*(free_names(x) for x in _indices_in(j)))
            )
        return str(i) not in elsewhere


def _indices_in(value: Scalar) -> list[Index]:
    found: list[Index] = []
    for node in nodes_of(value):
        match node.op:
            case "index":
                found.append(node.data)
            case "read" | "gather":
                found += [i for i in node.data[1] if i is not None]
            case _:
                pass
    return found

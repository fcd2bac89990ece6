"""Scalar expressions rewritten: symbols renamed, parts replaced, nodes listed. Nothing changes in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import sympy

from daceml.sdfg.scalar import Index, Reduction, Scalar, index_value

Names = Mapping[str, Index]


def rename(index: Index, names: Names) -> Index:
    """An index expression with symbols replaced, by name."""
    if isinstance(index, int) or not names:
        return index
    found = {s: names[s.name] for s in index.free_symbols if s.name in names}
    return index.xreplace(found) if found else index


def substitute(value: Scalar, names: Names) -> Scalar:
    """The expression with symbols replaced in every index, bound parameters of reductions included."""
    known: dict[int, Scalar] = {}

    def walk(node: Scalar) -> Scalar:
        if id(node) not in known:
            args = tuple(map(walk, node.args))
            data = _renamed(node, names, walk)
            if node.op == "index":
                known[id(node)] = index_value(data, node.dtype)
            else:
                known[id(node)] = Scalar(node.op, node.dtype, args, data)
        return known[id(node)]

    return walk(value)


def _renamed(node: Scalar, names: Names, walk: Callable[[Scalar], Scalar]) -> Any:
    match node.op:
        case "index":
            return rename(node.data, names)
        case "read":
            array, indices = node.data
            return array, tuple(rename(i, names) for i in indices)
        case "gather":
            array, indices, shape = node.data
            return array, tuple(None if i is None else rename(i, names) for i in indices), shape
        case "reduce":
            reduction: Reduction = node.data
            extents = tuple(walk(e) if isinstance(e, Scalar) else rename(e, names) for e in reduction.extents)
            return replace(
                reduction, params=tuple(rename(p, names) for p in reduction.params), extents=extents
            )
        case _:
            return node.data


def replace_parts(value: Scalar, parts: Mapping[int, Scalar]) -> Scalar:
    """The expression with the nodes of these identities replaced."""
    known: dict[int, Scalar] = dict(parts)

    def walk(node: Scalar) -> Scalar:
        if id(node) not in known:
            args = tuple(map(walk, node.args))
            same = all(a is b for a, b in zip(args, node.args, strict=True))
            known[id(node)] = node if same else Scalar(node.op, node.dtype, args, node.data)
        return known[id(node)]

    return walk(value)


def nodes_of(value: Scalar) -> list[Scalar]:
    """Every node once, operands before what uses them; bodies of reductions included."""
    found: list[Scalar] = []
    seen: set[int] = set()

    def walk(node: Scalar) -> None:
        if id(node) in seen:
            return
        seen.add(id(node))
        for argument in node.args:
            walk(argument)
        found.append(node)

    walk(value)
    return found


def contains(value: Scalar, part: Scalar) -> bool:
    """Whether a node is part of an expression."""
    return any(node is part for node in nodes_of(value))


def free_names(index: Index) -> set[str]:
    """Names of the symbols of an index expression."""
    return set() if isinstance(index, int) else {s.name for s in index.free_symbols}


def as_index(expression: Any) -> Index:
    """A SymPy expression as a plain int where it is one."""
    expression = sympy.sympify(expression)
    return int(expression) if expression.is_Integer else expression

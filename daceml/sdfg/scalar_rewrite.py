"""Scalar expressions rewritten: symbols renamed, parts replaced, nodes listed. Nothing changes in place.

No walk recurses: an expression is as deep as the user's program is long.
"""

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

    def renamed(node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        data = _renamed(node, names)
        if node.op == "index":
            return index_value(data, node.dtype)
        return Scalar(node.op, node.dtype, args, data)

    return rebuilt(value, renamed)


def _renamed(node: Scalar, names: Names) -> Any:
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
            extents = tuple(
                # an extent that is data has no reduction in it: this goes one level down at most
                substitute(e, names) if isinstance(e, Scalar) else rename(e, names)
                for e in reduction.extents
            )
            return replace(
                reduction, params=tuple(rename(p, names) for p in reduction.params), extents=extents
            )
        case _:
            return node.data


def replace_parts(value: Scalar, parts: Mapping[int, Scalar]) -> Scalar:
    """The expression with the nodes of these identities replaced."""

    def replaced(node: Scalar, args: tuple[Scalar, ...]) -> Scalar:
        same = all(a is b for a, b in zip(args, node.args, strict=True))
        return node if same else Scalar(node.op, node.dtype, args, node.data)

    return rebuilt(value, replaced, parts)


def rebuilt(
    value: Scalar,
    make: Callable[[Scalar, tuple[Scalar, ...]], Scalar],
    parts: Mapping[int, Scalar] | None = None,
) -> Scalar:
    """The expression made anew from its leaves on.

    Args:
        make: (node, its operands made anew) -> what stands for the node.
        parts: what stands for the nodes of these identities, whose operands are not looked at.
    """
    known: dict[int, Scalar] = dict(parts or {})
    for node in nodes_of(value, enter=lambda n: id(n) not in known):
        if id(node) not in known:
            known[id(node)] = make(node, tuple(known[id(a)] for a in node.args))
    return known[id(value)]


def nodes_of(value: Scalar, enter: Callable[[Scalar], bool] | None = None) -> list[Scalar]:
    """Every node once, operands before what uses them; bodies of reductions included.

    Args:
        enter: whether the operands of a node are listed, too; every node's where None is given.
    """
    found: list[Scalar] = []
    seen: set[int] = set()
    # a node stands there twice: to list its operands, then itself
    stack = [(value, False)]
    while stack:
        node, operands_listed = stack.pop()
        if operands_listed:
            found.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            if enter is None or enter(node):
                stack += [(argument, False) for argument in reversed(node.args)]
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

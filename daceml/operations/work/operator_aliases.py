"""Other ways of writing an operation: as a user calls it, where the dispatcher has split it up.

A database may have rows of `aten::linear`, which is `aten::addmm` with a transposed weight below autograd.
Both are one kernel, so whoever asks for one takes the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from daceml.operations.database.records import Attribute, Operand, Operation

_BY_ROW = ("aten::gelu", "aten::relu", "aten::softmax", "aten::layer_norm", "aten::add", "aten::mul")


def spellings(operation: Operation) -> tuple[Operation, ...]:
    """The operation itself first, then others that are the same work; each once."""
    bare = replace(operation, attributes=_without(operation, "overload"))
    found = [operation, bare]
    if operation.direction == "forward" and operation.operator in _FORMS:
        found += _FORMS[operation.operator](bare)
    for one in tuple(found):
        rows = _in_rows(one)
        found += [rows] if rows is not None else []
    return tuple({repr(one): one for one in found}.values())


def _without(operation: Operation, *names: str) -> dict[str, Attribute]:
    return {name: value for name, value in operation.attributes.items() if name not in names}


def _contiguous(operand: Operand) -> Operand:
    return replace(operand, layout="contiguous")


def _transposed(operand: Operand) -> Operand | None:
    """The matrix whose transpose this is; None where it is none."""
    if len(operand.shape) != 2:
        return None
    rows, columns = operand.shape
    if operand.layout not in ((1, rows), (1, max(rows, 1))):
        return None
    return Operand(shape=(columns, rows), dtype=operand.dtype)


def _linear(operation: Operation) -> list[Operation]:
    """X @ W.t(), with or without a bias, whose cost is small."""
    if len(operation.operands) < 2:
        return []
    *_, x, weight = operation.operands
    matrix = _transposed(weight)
    if matrix is None or x.layout != "contiguous":
        return []
    shapes = (x.shape, (1, *x.shape))  # as rows of examples, and as one example
    return [
        Operation(operator="aten::linear", operands=(replace(x, shape=shape), matrix)) for shape in shapes
    ]


def _conv2d(operation: Operation) -> list[Operation]:
    told = operation.attributes
    if told.get("transposed") or [len(one.shape) for one in operation.operands[:2]] != [4, 4]:
        return []
    kept = {name: told[name] for name in ("stride", "padding") if name in told}
    plain = {
        **kept,
        **{name: told[name] for name in ("dilation",) if name in told and set(_ints(told[name])) != {1}},
        **({"groups": told["groups"]} if told.get("groups", 1) != 1 else {}),
    }
    return [Operation(operator="aten::conv2d", operands=operation.operands[:2], attributes=plain)]


def _ints(value: Attribute) -> tuple[int, ...]:
    return tuple(int(one) for one in value) if isinstance(value, tuple) else (int(value),)


def _softmax(operation: Operation) -> list[Operation]:
    dim, rank = operation.attributes.get("dim"), len(operation.operands[0].shape) if operation.operands else 0
    last = isinstance(dim, int) and dim in (-1, rank - 1)
    return [replace(operation, operator="aten::softmax", attributes={"dim": -1})] if last else []


def _layer_norm(operation: Operation) -> list[Operation]:
    return [replace(operation, operator="aten::layer_norm", attributes={})]


_FORMS: dict[str, Callable[[Operation], list[Operation]]] = {
    "aten::addmm": _linear,
    "aten::mm": _linear,
    "aten::convolution": _conv2d,
    "aten::_softmax": _softmax,
    "aten::native_layer_norm": _layer_norm,
    "aten::add_": lambda one: [replace(one, operator="aten::add")],
    "aten::mul_": lambda one: [replace(one, operator="aten::mul")],
    "aten::relu_": lambda one: [replace(one, operator="aten::relu")],
}


def _in_rows(operation: Operation) -> Operation | None:
    """What goes through rows does not mind in how many axes they are counted."""
    operands = operation.operands
    if operation.operator not in _BY_ROW or not operands or len(operands[0].shape) < 3:
        return None
    first = operands[0].shape
    whole = [one for one in operands if one.shape == first]
    if any(one.layout != "contiguous" for one in whole):
        return None
    if operation.operator in ("aten::add", "aten::mul") and len(whole) != len(operands):
        return None
    rows = (prod(first[:-1]), first[-1])
    return replace(
        operation,
        operands=tuple(
            replace(one, shape=rows) if one.shape == first else _contiguous(one) for one in operands
        ),
    )

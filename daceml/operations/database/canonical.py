"""One text for one operation or environment: what rows are known by, and what is stored of them.

The text is JSON with sorted keys and no spaces, in ASCII. Tuples are arrays; numbers keep whether they are
integers (`1`) or not (`1.0`), and those that JSON has no word for are `{"float":"inf"}`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, cast

from daceml.errors import EntryError
from daceml.operations.database.records import Attribute, Environment, Operand, Operation

_DIGEST_BYTES = 16  # 128 bits: two of 10^12 texts share one with a probability of 10^-15
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(*texts: str) -> bytes:
    """16 bytes that stand for these texts in this order."""
    joined = "\n".join(texts)  # none of the texts holds a line break: JSON writes it as \\n
    return hashlib.blake2b(joined.encode("utf-8"), digest_size=_DIGEST_BYTES).digest()


def json_text(value: object) -> str:
    """Canonical JSON of plain values."""
    return _ENCODER.encode(value)


def operation_text(operation: Operation) -> str:
    """The canonical text of an operation."""
    return json_text(operation_record(operation))


def environment_text(environment: Environment) -> str:
    """The canonical text of an environment."""
    return json_text(environment_record(environment))


def operation_record(operation: Operation) -> dict[str, Any]:
    """An operation as plain values."""
    return {
        "operator": operation.operator,
        "operands": [
            {"shape": list(o.shape), "dtype": o.dtype, "layout": layout_record(o.layout)}
            for o in operation.operands
        ],
        "attributes": attributes_record(operation.attributes),
        "direction": operation.direction,
        "kernel": operation.kernel,
    }


def environment_record(environment: Environment) -> dict[str, Any]:
    """An environment as plain values."""
    return {
        "device": environment.device,
        "fingerprint": environment.fingerprint,
        "software": dict(environment.software),
    }


def attributes_record(attributes: Mapping[str, Attribute]) -> dict[str, Any]:
    """Attributes as plain values."""
    return {name: _plain(value) for name, value in attributes.items()}


def layout_record(layout: str | tuple[int, ...]) -> str | list[int]:
    """A layout as plain values."""
    return layout if isinstance(layout, str) else list(layout)


def family_text(operation: Operation) -> str:
    """What operations have in common that differ in sizes only.

    Strides follow sizes, so they count as one layout; so does the launch of a kernel, but not its code.
    """
    operands = [
        [o.dtype, len(o.shape), o.layout if isinstance(o.layout, str) else "strided"]
        for o in operation.operands
    ]
    attributes = attributes_record(operation.attributes)
    code = operation.kernel.partition(" grid=")[0]
    return json_text([operation.operator, operands, attributes, operation.direction, code])


def operation_of(record: object) -> Operation:
    """The operation of plain values that somebody else may have written.

    Raises:
        EntryError: they are no operation.
    """
    fields = _object(record, "operation", ("operator", "operands", "attributes", "direction", "kernel"))
    operands = fields["operands"]
    if not isinstance(operands, list):
        raise _refuse("operation", f"its operands are {_brief(operands)}")
    return Operation(
        operator=fields["operator"],
        operands=tuple(map(_operand, cast("list[object]", operands))),
        attributes=attributes_of(fields["attributes"]),
        direction=fields["direction"],
        kernel=fields["kernel"],
    )


def environment_of(record: object) -> Environment:
    """The environment of plain values that somebody else may have written.

    Raises:
        EntryError: they are no environment.
    """
    fields = _object(record, "environment", ("device", "fingerprint", "software"))
    return Environment(
        device=fields["device"],
        fingerprint=fields["fingerprint"],
        software=_object(fields["software"], "list of software"),
    )


def attributes_of(record: object) -> dict[str, Attribute]:
    """The attributes of plain values; whether they are of the right types is not looked at here."""
    return {name: _attribute(value) for name, value in _object(record, "set of attributes").items()}


def layout_of(record: object) -> str | tuple[int, ...]:
    """The layout of plain values; whether it is of the right type is not looked at here."""
    return tuple(cast("list[int]", record)) if isinstance(record, list) else cast("str", record)


def _operand(record: object) -> Operand:
    fields = _object(record, "operand", ("shape", "dtype", "layout"))
    shape = fields["shape"]
    if not isinstance(shape, list):
        raise _refuse("operand", f"its shape is {_brief(shape)}")
    return Operand(
        shape=tuple(cast("list[int]", shape)), dtype=fields["dtype"], layout=layout_of(fields["layout"])
    )


def _plain(value: Attribute) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return {"float": repr(value)} if isinstance(value, float) and not math.isfinite(value) else value


def _attribute(value: Any) -> Attribute:
    if isinstance(value, list):
        return tuple(_attribute(one) for one in cast("list[Any]", value))  # pyright: ignore[reportReturnType]
    if isinstance(value, dict):
        word = _object(cast("object", value), "attribute", ("float",))["float"]
        if word not in ("inf", "-inf", "nan"):
            raise _refuse("attribute", f"{_brief(word)} is none of 'inf', '-inf' and 'nan'")
        return float(word)
    return value


def _object(record: object, what: str, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise _refuse(what, f"it is {_brief(record)}, not an object")
    fields = cast("dict[str, Any]", record)
    if names is not None and set(fields) != set(names):
        raise _refuse(what, f"it has {sorted(fields)}, not {sorted(names)}")
    return fields


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse(what: str, why: str) -> EntryError:
    return EntryError(f"this is no {what}", why=why, fix="take a file that daceml wrote, unchanged")

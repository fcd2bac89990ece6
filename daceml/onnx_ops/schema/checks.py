"""The rules of an ONNX schema that a node in an SDFG must keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from daceml.onnx_ops.schema.element_types import BY_DACE_TYPE
from daceml.onnx_ops.schema.schema import UNSUPPORTED_KINDS, Formal, OperatorSchema

if TYPE_CHECKING:
    import dace

    from daceml.onnx_ops.schema.node import ONNXNode


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A rule that a node breaks, as an error tells it."""

    what: str
    why: str
    fix: str


def first_problem(node: ONNXNode, sdfg: dace.SDFG, state: dace.SDFGState) -> Problem | None:
    """The first rule that the node breaks, or None."""
    inputs = {edge.dst_conn: edge.data.data for edge in state.in_edges(node) if edge.dst_conn}
    outputs = {edge.src_conn: edge.data.data for edge in state.out_edges(node) if edge.src_conn}
    return next(_problems(node, sdfg, inputs, outputs), None)


def _problems(
    node: ONNXNode, sdfg: dace.SDFG, inputs: dict[str, str | None], outputs: dict[str, str | None]
) -> Iterator[Problem]:
    schema = node.schema
    yield from _missing_attributes(node)
    variables: dict[str, tuple[str, str]] = {}
    sides = (
        ("input", schema.inputs, node.in_connectors, inputs),
        ("output", schema.outputs, node.out_connectors, outputs),
    )
    for side, formals, connectors, arrays in sides:
        yield from _arity(schema, side, formals, list(connectors), arrays)
        for formal, connector in _actuals(formals, connectors):
            array = arrays.get(connector)
            if array in sdfg.arrays:
                yield from _element_type(schema, side, formal, connector, sdfg.arrays[array].dtype, variables)


def _missing_attributes(node: ONNXNode) -> Iterator[Problem]:
    for name, attribute in node.schema.attributes.items():
        held = None if attribute.kind in UNSUPPORTED_KINDS else getattr(node, name)
        if attribute.required and held is None and attribute.default is None:
            yield Problem(
                what=f"{node.schema.title} needs attribute {name!r}",
                why=f"the schema requires it (kind {attribute.kind}) and has no default",
                fix=f"set {name}",
            )


def _actuals(formals: tuple[Formal, ...], connectors: Iterable[str]) -> Iterator[tuple[Formal, str]]:
    for formal in formals:
        if formal.option != "variadic":
            if formal.connector in connectors:
                yield formal, formal.connector
            continue
        prefix = formal.connector + "__"
        yield from ((formal, connector) for connector in connectors if connector.startswith(prefix))


def _arity(
    schema: OperatorSchema, side: str, formals: tuple[Formal, ...], connectors: list[str],
    arrays: dict[str, str | None],
) -> Iterator[Problem]:  # fmt: skip
    known = {connector for _, connector in _actuals(formals, connectors)}
    formal_names = (
        ", ".join(f.connector + ("__i" if f.option == "variadic" else "") for f in formals) or "none"
    )
    for connector in connectors:
        if connector not in known:
            yield Problem(
                what=f"{schema.title} has no {side} {connector!r}",
                why=f"its {side}s are: {formal_names}",
                fix="remove the connector, or use the opset version that has it",
            )
        if connector not in arrays:
            yield Problem(
                what=f"{side} {connector!r} of {schema.title} is not connected",
                why="the node has the connector, but no edge leads to it",
                fix="connect it to an access node, or remove the connector",
            )
    for connector in arrays:
        if connector not in connectors:
            yield Problem(
                what=f"{schema.title} has an edge at a connector {connector!r} that it does not have",
                why=f"its {side}s are: {', '.join(connectors) or 'none'}",
                fix="add the connector to the node, or remove the edge",
            )
    for formal in formals:
        found = sum(1 for connector in connectors if connector.startswith(formal.connector + "__"))
        if formal.option == "single" and formal.connector not in connectors:
            yield Problem(
                what=f"{schema.title} needs {side} {formal.connector!r}",
                why=f"the schema requires it; present: {', '.join(connectors) or 'none'}",
                fix=f"connect {formal.connector}",
            )
        if formal.option == "variadic" and found < formal.min_arity:
            yield Problem(
                what=f"{schema.title} needs at least {formal.min_arity} of its {side}s {formal.connector!r}",
                why=f"it has {found}",
                fix=f"connect {formal.connector}__{found}",
            )


def _element_type(
    schema: OperatorSchema, side: str, formal: Formal, connector: str, dtype: dace.typeclass,
    variables: dict[str, tuple[str, str]],
) -> Iterator[Problem]:  # fmt: skip
    row = BY_DACE_TYPE.get(dtype)
    held = row.constraint if row else f"{dtype} (no ONNX type)"
    if formal.types and held not in formal.types:
        yield Problem(
            what=f"{side} {connector!r} of {schema.title} cannot be {held}",
            why=f"the schema allows {', '.join(sorted(t for t in formal.types if t.startswith('tensor(')))}",
            fix="cast the tensor, or use an opset version that allows the type",
        )
    if formal.type_variable is None or not formal.homogeneous:
        return
    first, bound = variables.setdefault(formal.type_variable, (connector, held))
    if bound != held:
        yield Problem(
            what=f"{connector!r} and {first!r} of {schema.title} must have one element type",
            why=f"both are of type {formal.type_variable}; {first!r} is {bound}, {connector!r} is {held}",
            fix="cast one of them",
        )

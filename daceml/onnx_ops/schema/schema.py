"""What ONNX says about an operator: formals, attributes, type constraints, since-versions.

`onnx.defs` is read once per operator and version; operators that ONNX does not know (composites of the
frontend, gradients) are `OperatorSchema` records written by hand.

Connector names are the formal names. Two rules make every name usable: characters that no identifier may
have are dropped (`outputs...` of Split-1), and a name that was changed, or that names both an input and an
output (`mean`, `var` of BatchNormalization before 14), gets the suffix `_in` or `_out` on that side. The i-th
actual of a variadic formal `inputs` has the connector `inputs__i`.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx
import onnx.defs

from daceml.errors import UnknownOperatorError

Option = Literal["single", "optional", "variadic"]
Kind = Literal[
    "int", "float", "string", "tensor", "ints", "floats", "strings", "graph", "sparse_tensor", "type_proto"
]

# Attribute kinds that a node cannot hold: control flow, sequences and sparse tensors are not represented.
UNSUPPORTED_KINDS: frozenset[str] = frozenset({"graph", "sparse_tensor", "type_proto"})


@dataclass(frozen=True, kw_only=True)
class Formal:
    """A formal input or output.

    Attributes:
        name: as the schema spells it.
        connector: connector of the node; a variadic formal appends `__0`, `__1`, …
        types: allowed ONNX types, e.g. `tensor(float)`; empty means any.
        type_variable: name shared by formals whose types must be equal (`T`), None for a fixed type.
        homogeneous: all actuals of a variadic formal have one type.
        min_arity: fewest actuals of a variadic formal.
    """

    name: str
    connector: str
    option: Option = "single"
    types: frozenset[str] = frozenset()
    type_variable: str | None = None
    homogeneous: bool = True
    min_arity: int = 1

    def actual_connector(self, index: int) -> str:
        """Connector of the index-th actual."""
        return f"{self.connector}__{index}" if self.option == "variadic" else self.connector


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """An attribute: its kind, whether it must be given, and its default (None: absent)."""

    name: str
    kind: Kind
    required: bool = False
    default: Any = None


@dataclass(frozen=True, kw_only=True)
class OperatorSchema:
    """An operator as one since-version of its domain defines it."""

    op_type: str
    domain: str = ""
    since_version: int = 1
    inputs: tuple[Formal, ...] = ()
    outputs: tuple[Formal, ...] = ()
    attributes: dict[str, Attribute] = field(default_factory=dict[str, Attribute])
    doc: str = ""

    @property
    def title(self) -> str:
        """As messages name it, e.g. `ONNX Conv-22` or `daceml.grad ConvGrad-1`."""
        return f"{self.domain or 'ONNX'} {self.op_type}-{self.since_version}"

    def connectors(self, side: Literal["inputs", "outputs"], present: list[bool]) -> list[str | None] | None:
        """Connector of each actual in order, None for an absent one.

        Returns:
            None where there are more actuals than the schema takes.
        """
        formals = self.inputs if side == "inputs" else self.outputs
        names: list[str | None] = []
        for position, here in enumerate(present):
            formal = formals[min(position, len(formals) - 1)] if formals else None
            if formal is None or (position >= len(formals) and formal.option != "variadic"):
                if here:
                    return None
                continue
            index = position - min(position, len(formals) - 1)
            names.append(formal.actual_connector(index) if here else None)
        return names


# Any number with so many decimal digits can be told again from the float32 next to it
_FLOAT32_DIGITS = 6


def exact_float(value: float) -> float:
    """A float32 as its author wrote it: 1e-05, not 9.99999974e-06; with many digits, what it is.

    A decimal of a few digits is taken for the author's. A longer one would only be a neighbour of a number
    such as 2**-16, which was no short decimal.
    """
    narrow = np.float32(value)
    decimal = f"{narrow:.{_FLOAT32_DIGITS}g}"
    return float(decimal) if np.float32(decimal) == narrow else float(narrow)


def attribute_value(proto: onnx.AttributeProto) -> Any:
    """Value of an attribute as Python or numpy data; an attribute without a type has none."""
    if proto.type == onnx.AttributeProto.UNDEFINED:
        return None
    value = onnx.helper.get_attribute_value(proto)
    match proto.type:
        case onnx.AttributeProto.FLOAT:
            return exact_float(value)
        case onnx.AttributeProto.FLOATS:
            return tuple(exact_float(v) for v in value)
        case onnx.AttributeProto.INTS:
            return tuple(value)
        case onnx.AttributeProto.STRING:
            return value.decode(errors="surrogateescape")
        case onnx.AttributeProto.STRINGS:
            return tuple(v.decode(errors="surrogateescape") for v in value)
        case onnx.AttributeProto.TENSOR:
            return onnx.numpy_helper.to_array(value)
        case _:
            return value


@functools.cache
def read_schema(op_type: str, domain: str = "", version: int | None = None) -> OperatorSchema:
    """Schema in force at an opset version (None: the newest that is not deprecated).

    Raises:
        UnknownOperatorError: no such operator, not yet there at that version, or deprecated since.
    """
    domain = "" if domain == "ai.onnx" else domain
    versions = since_versions(op_type, domain)
    if not versions:
        raise UnknownOperatorError(
            f"ONNX has no operator {domain + '.' if domain else ''}{op_type}",
            why=f"onnx {onnx.__version__} defines no such operator in domain {domain or 'ai.onnx'!r}",
            fix="check the spelling and the domain, give the model a local function of that name, "
            "or define the operator with daceml.onnx_ops.schema.nodes.define_operator",
        )
    newest = onnx.defs.onnx_opset_version()
    if domain == "" and version is not None and version > newest:
        raise UnknownOperatorError(
            f"opset {version} is newer than this onnx",
            why=f"onnx {onnx.__version__} knows opsets up to {newest}",
            fix="install a newer onnx, or convert the model with onnx.version_converter",
        )
    if version is None:
        version = max((v for v, deprecated in versions if not deprecated), default=versions[-1][0])
    in_force = [entry for entry in versions if entry[0] <= version]
    if not in_force or in_force[-1][1]:
        why = (
            f"it appears with opset {versions[0][0]}"
            if not in_force
            else f"it is deprecated since opset {in_force[-1][0]}"
        )
        raise UnknownOperatorError(
            f"ONNX {op_type} does not exist in opset {version}",
            why=why,
            fix="convert the model with onnx.version_converter, or export it again with a newer opset",
        )
    return _convert(onnx.defs.get_schema(op_type, version, domain))


def since_versions(op_type: str, domain: str = "") -> tuple[tuple[int, bool], ...]:
    """Since-versions of an operator, oldest first, each with whether it is a deprecation."""
    return _history().get((domain, op_type), ())


def operator_names(domain: str = "") -> tuple[str, ...]:
    """Every operator that ONNX defines in a domain, sorted."""
    return tuple(sorted(op for where, op in _history() if where == domain))


def known_domains() -> frozenset[str]:
    """Domains that ONNX defines operators in."""
    return frozenset(domain for domain, _ in _history())


@functools.cache
def _history() -> dict[tuple[str, str], tuple[tuple[int, bool], ...]]:
    history: dict[tuple[str, str], list[tuple[int, bool]]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        history.setdefault((schema.domain, schema.name), []).append((schema.since_version, schema.deprecated))
    return {key: tuple(sorted(versions)) for key, versions in history.items()}


def _convert(schema: onnx.defs.OpSchema) -> OperatorSchema:
    shared = {formal.name for formal in schema.inputs} & {formal.name for formal in schema.outputs}
    variables = {constraint.type_param_str for constraint in schema.type_constraints}

    def formal(source: onnx.defs.OpSchema.FormalParameter, suffix: str) -> Formal:
        connector = re.sub(r"\W", "", source.name)
        if connector != source.name or source.name in shared:
            connector += suffix
        return Formal(
            name=source.name,
            connector=connector,
            option=_OPTIONS[source.option],
            types=frozenset(source.types),
            type_variable=source.type_str if source.type_str in variables else None,
            homogeneous=source.is_homogeneous,
            min_arity=source.min_arity,
        )

    return OperatorSchema(
        op_type=schema.name,
        domain=schema.domain,
        since_version=schema.since_version,
        inputs=tuple(formal(f, "_in") for f in schema.inputs),
        outputs=tuple(formal(f, "_out") for f in schema.outputs),
        attributes={
            name: Attribute(
                name=name,
                kind=_KINDS[attribute.type],
                required=attribute.required,
                default=attribute_value(attribute.default_value),
            )
            for name, attribute in schema.attributes.items()
        },
        doc=schema.doc or "",
    )


_AttrType = onnx.defs.OpSchema.AttrType
_KINDS: dict[Any, Kind] = {
    _AttrType.INT: "int",
    _AttrType.FLOAT: "float",
    _AttrType.STRING: "string",
    _AttrType.TENSOR: "tensor",
    _AttrType.INTS: "ints",
    _AttrType.FLOATS: "floats",
    _AttrType.STRINGS: "strings",
    _AttrType.GRAPH: "graph",
    _AttrType.SPARSE_TENSOR: "sparse_tensor",
    _AttrType.TYPE_PROTO: "type_proto",
}
_FormalOption = onnx.defs.OpSchema.FormalParameterOption
_OPTIONS: dict[Any, Option] = {
    _FormalOption.Single: "single",
    _FormalOption.Optional: "optional",
    _FormalOption.Variadic: "variadic",
}

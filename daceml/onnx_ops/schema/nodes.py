"""One class per ONNX operator and since-version, made when first asked for.

`nodes.Conv` is the newest Conv, `nodes.Conv_11` the one of opset 11. The name of a class always carries its
since-version, so that a stored SDFG keeps its meaning under a newer onnx; dace finds the class of a stored
node by `module.name`, which the lazy lookup below answers in any process. Operators of other ONNX domains are
`ai_onnx_ml__Scaler_1`. Operators that ONNX does not define are made by `define_operator` in the module that
describes them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

from dace.properties import make_properties

from daceml.errors import UnknownOperatorError
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.properties import attribute_property
from daceml.onnx_ops.schema.schema import OperatorSchema, known_domains, operator_names, read_schema

# The package whose modules define the operators of the domain "daceml", and of domains with any operator
_OWN_DOMAIN = "daceml.onnx_ops.domain"
_FAMILIES = ("daceml.aten", "daceml.aten.grad")
_classes: dict[tuple[str, str, int], type[ONNXNode]] = {}
_defined: dict[tuple[str, str], type[ONNXNode]] = {}
_families: dict[str, Callable[[str], type[ONNXNode]]] = {}


def node_class(op_type: str, *, domain: str = "", version: int | None = None) -> type[ONNXNode]:
    """Class of an operator.

    Args:
        op_type: e.g. `Conv`.
        domain: "" is the standard domain.
        version: opset version of the model; None is the newest.
    Raises:
        UnknownOperatorError: no schema describes the operator at that version.
    """
    if is_defined(op_type, domain):
        return _defined[domain, op_type]
    schema = read_schema(op_type, domain, version)
    key = (schema.domain, op_type, schema.since_version)
    if key not in _classes:
        _classes[key] = _make_class(schema, _class_name(schema), __name__)
    return _classes[key]


def define_operator(schema: OperatorSchema, *, module: str, name: str = "") -> type[ONNXNode]:
    """Class of an operator that ONNX does not define; bind it to its name in the calling module.

    `ConvGrad = define_operator(OperatorSchema(op_type="ConvGrad", ...), module=__name__)`: dace imports that
    module and looks the name up when it loads a stored node.

    Args:
        name: of the class; the operator's where empty.
    """
    defined = _make_class(schema, name or schema.op_type, module)
    _defined[schema.domain, schema.op_type] = defined
    return defined


def define_family(domain: str, define: Callable[[str], type[ONNXNode]]) -> None:
    """Let a function define each operator of a domain when it is asked for first."""
    _families[domain] = define


def is_defined(op_type: str, domain: str) -> bool:
    """Whether `define_operator` has made this operator, or makes it now."""
    if domain in ("daceml", *_FAMILIES):
        for module in pkgutil.iter_modules(importlib.import_module(_OWN_DOMAIN).__path__):
            importlib.import_module(f"{_OWN_DOMAIN}.{module.name}")
    if domain in _families and (domain, op_type) not in _defined:
        _families[domain](op_type)
    return (domain, op_type) in _defined


def _class_name(schema: OperatorSchema) -> str:
    prefix = schema.domain.replace(".", "_") + "__" if schema.domain else ""
    return f"{prefix}{schema.op_type}_{schema.since_version}"


def _make_class(schema: OperatorSchema, name: str, module: str) -> type[ONNXNode]:
    members: dict[str, Any] = {
        "__module__": module,
        "__qualname__": name,
        "__doc__": schema.doc or f"{schema.title}.",
        "op_type": schema.op_type,
        "domain": schema.domain,
        "since_version": schema.since_version,
        "schema": schema,
        "implementations": ONNXNode.implementations,  # one for all operators
    }
    for attribute in schema.attributes.values():
        prop = attribute_property(attribute)
        if prop is not None:
            members[attribute.name] = prop
    return make_properties(type(name, (ONNXNode,), members))


def __getattr__(name: str) -> type[ONNXNode]:
    domain, op_type = "", name
    prefix, separator, rest = name.partition("__")
    if separator:
        domains = [domain for domain in known_domains() if domain and domain.replace(".", "_") == prefix]
        if not domains:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        domain, op_type = domains[0], rest
    stem, _, version = op_type.rpartition("_")
    try:
        if not version.isdecimal():
            return node_class(op_type, domain=domain)
        found = node_class(stem, domain=domain, version=int(version))
    except UnknownOperatorError as error:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: {error.what}") from error
    if found.since_version != int(version):
        raise AttributeError(
            f"{stem} has no since-version {version}; version {found.since_version} is in force there"
        )
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *operator_names()})

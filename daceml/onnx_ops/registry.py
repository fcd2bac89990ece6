"""Implementations of operators: which there are, how they are ranked, and when they refuse."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

from daceml.sdfg.network import Device

Kind = Literal["alias", "aten", "native", "onnxruntime"]
KINDS: tuple[Kind, ...] = ("alias", "aten", "native", "onnxruntime")
EVERY_OPERATOR = "*"
DEVICES: tuple[Device, ...] = ("cpu", "cuda")

_RANKS: dict[Kind, int] = {"alias": 0, "aten": 100, "native": 200, "onnxruntime": 300}
# Packages whose modules register implementations when imported; one that is absent has none.
_PACKAGES = (
    "daceml.onnx_ops.alias",
    "daceml.onnx_ops.native",
    "daceml.onnx_ops.aten",
    "daceml.onnx_ops.fallback",
)

Function = TypeVar("Function", bound=Callable[..., Any])
When = Callable[..., "str | None"]


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """One way to do an operator.

    Attributes:
        op_type: operator, or `*` for every one.
        domain: domain of the operator.
        name: unique among the operator's implementations of its kind.
        kind: `alias` (no copy), `aten` (a call record), `native` (traced into maps), `onnxruntime`.
        rank: lower comes first.
        function: positional parameters are formal names, keyword-only ones attributes.
        when: takes operands and attributes by name; None where the implementation applies, else the reason.
        devices: where it runs.
        shape_from: operands that decide the shape of the results; where they are constants, the function
            compares it with what the model says. () where the shape follows from shapes.
    """

    op_type: str
    domain: str
    name: str
    kind: Kind
    rank: int
    function: Callable[..., Any]
    when: When | None = None
    devices: tuple[Device, ...] = DEVICES
    shape_from: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """As `node.implementation` spells it."""
        return self.kind if self.kind == "onnxruntime" else f"{self.kind}:{self.name}"

    @property
    def formals(self) -> tuple[str, ...]:
        """Positional parameters of the function."""
        return parameter_names(self.function)[0]

    @property
    def attributes(self) -> tuple[str, ...]:
        """Keyword-only parameters of the function."""
        return parameter_names(self.function)[1]


_registered: dict[tuple[str, str], list[Implementation]] = defaultdict(list)


def implements(
    *op_types: str,
    name: str | None = None,
    kind: Kind = "native",
    rank: int | None = None,
    when: When | None = None,
    domain: str = "",
    devices: tuple[Device, ...] = DEVICES,
    shape_from: tuple[str, ...] = (),
) -> Callable[[Function], Function]:
    """Register a function as an implementation of operators.

    Args:
        op_types: operators; `*` for every one.
        name: the function's name where None.
        kind: see `Implementation`.
        rank: lower comes first; by kind where None, and within one rank in order of registration.
        when: None where the implementation applies to the operands it takes by name, else the reason.
        domain: domain of the operators.
        devices: where the implementation runs.
        shape_from: see `Implementation`.
    """

    def register(function: Function) -> Function:
        for op_type in op_types:
            known = _registered[domain, op_type]
            label = name or function.__name__
            if any(k.kind == kind and k.name == label for k in known):
                raise ValueError(f"{kind}:{label} of {op_type} is registered twice")
            known.append(
                Implementation(
                    op_type=op_type,
                    domain=domain,
                    name=label,
                    kind=kind,
                    rank=_RANKS[kind] if rank is None else rank,
                    function=function,
                    when=when,
                    devices=devices,
                    shape_from=shape_from,
                )
            )
        return function

    return register


def implementations_of(op_type: str, domain: str = "") -> tuple[Implementation, ...]:
    """Implementations of an operator, best rank first; those of `*` are among them."""
    load_implementations()
    found = [*_registered.get((domain, op_type), ()), *_registered.get((domain, EVERY_OPERATOR), ())]
    return tuple(sorted(found, key=lambda i: i.rank))


def implemented_operators(kind: Kind, domain: str = "") -> tuple[str, ...]:
    """Operators that have an implementation of a kind."""
    load_implementations()
    return tuple(
        sorted(
            op for (d, op), rows in _registered.items() if d == domain and any(r.kind == kind for r in rows)
        )
    )


def foreign_implementations() -> tuple[Implementation, ...]:
    """Implementations that are none of daceml's own."""
    found = (row for rows in _registered.values() for row in rows)
    return tuple(row for row in found if not row.function.__module__.startswith("daceml."))


@functools.cache
def load_implementations() -> None:
    """Import every module that registers implementations."""
    for package in _PACKAGES:
        if find_spec(package) is None:
            continue
        module = importlib.import_module(package)
        for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
            importlib.import_module(f"{package}.{found.name}")


@functools.cache
def parameter_names(function: Callable[..., Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of positional and of keyword-only parameters."""
    parameters = inspect.signature(function).parameters.values()
    positional = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    return positional, tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)

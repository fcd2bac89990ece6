"""The one dimension of a Reshape that shape inference leaves open follows from the number of elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import onnx_ir as ir
import sympy

from daceml.frontend.onnx_import.declared_types import Declared, DeclaredDim
from daceml.frontend.onnx_import.symbols import SymbolTable


def solve_reshapes(
    model: ir.Model, types: Mapping[str, Declared], symbols: SymbolTable
) -> dict[str, Declared]:
    """Types of Reshape results in which a single unknown dimension is now known, by value name."""
    solved: dict[str, Declared] = {}
    for node in model.graph:
        if node.op_type != "Reshape" or node.domain not in ("", "ai.onnx") or node.inputs[0] is None:
            continue
        source, name = node.inputs[0].name or "", node.outputs[0].name or ""
        given = solved.get(source, types.get(source, Declared()))
        wanted = types.get(name, Declared())
        if given.shape is None or wanted.shape is None or not all(map(symbols.is_known, given.shape)):
            continue
        missing = _missing_dim(given.shape, wanted.shape, symbols)
        if missing is not None:
            shape = tuple(dim if symbols.is_known(dim) else missing for dim in wanted.shape)
            solved[name] = replace(wanted, shape=shape)
    return solved


def _missing_dim(
    given: tuple[DeclaredDim, ...], wanted: tuple[DeclaredDim, ...], symbols: SymbolTable
) -> DeclaredDim:
    known = [dim for dim in wanted if symbols.is_known(dim)]
    rest = _elements(known, symbols)
    if len(known) != len(wanted) - 1 or rest == 0:
        return None
    # x[a, b] -> y[c, ?]: ? = a b / c. A rational quotient could hide a remainder: a wrong shape.
    quotient = _elements(given, symbols) / rest
    floors = {call: sympy.Dummy(integer=True) for call in quotient.atoms(sympy.Function)}
    missing = sympy.cancel(quotient.xreplace(floors))
    if not missing.is_polynomial() or sympy.denom(missing) != 1:
        return None
    return symbols.text(missing.xreplace({dummy: call for call, dummy in floors.items()}))


def _elements(shape: Iterable[DeclaredDim], symbols: SymbolTable) -> Any:
    return sympy.Mul(*(symbols.dim(dim) for dim in shape if dim is not None))

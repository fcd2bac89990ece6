"""Whether the shapes that a foreign model declares are the shapes that its operators make.

Generated code is compiled for shapes, so a declared shape that is wrong would be a wrong result or an access
outside of memory. A declaration with symbols cannot be derived by ONNX's shape inference, which does no
arithmetic on names; but it can be tried: with numbers for the symbols, inference finds every shape that does
not depend on data. Two expressions that agree at several points are taken for equal, one disagreement
refutes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
from dace import symbolic

from daceml.errors import ShapeError, UnheldValueError
from daceml.frontend.onnx_import.declared_types import Declared, DeclaredDim, declared, format_type
from daceml.frontend.onnx_import.metadata import where
from daceml.frontend.onnx_import.shapes import Infer, complete_types
from daceml.frontend.onnx_import.symbols import SymbolTable

# Sizes of the i-th symbol. Most networks halve sizes or cut them into equal parts, which odd sizes do not
# allow; an odd size shows a division that rounds the other way; with equal sizes, operands match that have
# to.
_SIZES = (lambda i: 768 * (i + 2), lambda i: 64 * (2 * i + 5), lambda i: 2 * i + 7, lambda i: 64, lambda i: 1)
# With size 1 a dimension may vanish or be broadcast, so it confirms and does not refute.
_REFUTING = 4


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What inference finds for one size of every symbol.

    Attributes:
        sizes: symbol -> number.
        types: of every value, as far as it does not depend on data.
        refutes: whether another shape than this is wrong.
        complaint: why inference stopped at some node, if it did.
    """

    sizes: dict[str, int]
    types: dict[str, Declared]
    refutes: bool
    complaint: str

    def sentence(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in sorted(self.sizes.items()))
        return f"for {sizes}, " if sizes else ""


def probe(
    model: ir.Model,
    sources: Mapping[str, Declared],
    symbols: SymbolTable,
    values: Mapping[str, np.ndarray],
    infer: Infer,
) -> list[Probe]:
    """Types of all values for some sizes of the inputs.

    Args:
        model: read only.
        sources: types of inputs, initializers and constants, which everything follows from.
        values: small tensors whose value is known.
    Raises:
        ShapeError: inference rejects the model for all sizes.
    """
    names = sorted({n for entry in sources.values() for n in symbols.free(entry)})
    made = {value.name: Declared() for node in model.graph for value in node.outputs if value.name}
    probes: list[Probe] = []
    problem: ShapeError | None = None
    complaints: list[str] = []
    for number, size in enumerate(_SIZES if names else _SIZES[:1]):
        sizes = {name: size(i) for i, name in enumerate(names)}
        concrete = {name: at(entry, symbols, sizes) for name, entry in sources.items()}
        try:
            types = complete_types(model, {**made, **concrete}, symbols, values, infer, complaints)
        except ShapeError as error:
            problem = error
            continue
        complaint = _first_cause(complaints[0]) if complaints else ""
        probes.append(Probe(sizes=sizes, types=types, refutes=number < _REFUTING, complaint=complaint))
    if not probes and problem is not None:
        raise problem
    return probes


def at(entry: Declared, symbols: SymbolTable, sizes: Mapping[str, int]) -> Declared:
    """A type with numbers for the symbols; a dimension that has another symbol is unknown."""
    if entry.shape is None:
        return entry
    return replace(entry, shape=tuple(_number(dim, symbols, sizes) for dim in entry.shape))


def check_initializers(model: ir.Model) -> None:
    """Refuse initializers whose data has another type than the input or value of the same name is said to
    have.

    Raises:
        ShapeError: the first one.
    """
    for name, value in model.graph.initializers.items():
        data = declared(value)
        bare = Declared(
            element=None if value.dtype is None else int(value.dtype),
            shape=None
            if value.shape is None
            else tuple(d if isinstance(d, int) else None for d in value.shape),
        )
        if not _agree(bare, data):
            raise ShapeError(
                f"initializer {name!r} is declared as {format_type(bare)}, which it is not",
                where=f"graph {model.graph.name or '(unnamed)'}",
                why=f"its data is {format_type(data)}",
                fix="correct or remove the declared shape, or export the model again",
            )


def check_types(
    model: ir.Model, types: Mapping[str, Declared], probes: list[Probe], symbols: SymbolTable
) -> None:
    """Refuse types that differ from what the operators make.

    Raises:
        ShapeError: the first value whose type is another one.
    """
    for node in model.graph:
        for value in node.outputs:
            claimed = types.get(value.name or "", Declared())
            for trial in probes:
                found = trial.types.get(value.name or "", Declared())
                if trial.refutes and not _agree(at(claimed, symbols, trial.sizes), found):
                    raise ShapeError(
                        f"{value.name!r} is declared as {format_type(claimed)}, which it is not",
                        where=where(node),
                        why=f"{trial.sentence()}{node.op_type} makes {format_type(found)}",
                        fix="correct or remove the declared shape, or export the model again",
                    )


def declared_alone(
    model: ir.Model, types: Mapping[str, Declared], probes: list[Probe], symbols: SymbolTable
) -> dict[str, Declared]:
    """Types that rest on a declaration alone, as no size of the inputs lets them be derived.

    Only of nodes whose operands are known: what follows from a declaration may be derived with it.

    Raises:
        ShapeError: there is a value that cannot be derived, and none that is declared.
    """
    open_values = {
        name
        for trial in probes[:1]
        for name in trial.types
        if not any(_confirms(t.types[name]) for t in probes)
    }
    found: dict[str, Declared] = {}
    for node in model.graph:
        for value in node.outputs:
            claimed = types.get(value.name or "", Declared())
            if (
                not value.name
                or claimed.refusal
                or any(_confirms(trial.types[value.name]) for trial in probes)
            ):
                continue
            if any(operand is not None and operand.name in open_values for operand in node.inputs):
                continue
            rejected = any(f"(op_type:{node.op_type}" in trial.complaint for trial in probes)
            if _is_whole(claimed, symbols) and not rejected:
                found[value.name] = claimed
                continue
            known = [trial.types[value.name] for trial in probes]
            kind = ShapeError if rejected else UnheldValueError
            raise kind(
                f"the shape of {value.name!r} cannot be known before the model runs",
                where=where(node),
                why=f"the model {_claim(claimed)}; {_best(probes, known)}",
                fix="make what the shape is computed from a constant; where it needs special sizes, "
                'give named dimensions a value: dims={"batch": 8}',
            )
    return found


def _number(dim: DeclaredDim, symbols: SymbolTable, sizes: Mapping[str, int]) -> int | None:
    if not isinstance(dim, str):
        return dim
    expression = symbols.dim(dim)
    if isinstance(expression, int):
        return expression
    if not {str(free) for free in expression.free_symbols} <= set(sizes):
        return None
    value = symbolic.evaluate(expression, {free: sizes[str(free)] for free in expression.free_symbols})
    # a fraction is no size, and agrees with none
    return int(str(value)) if str(value).lstrip("-").isdecimal() else -1


def _agree(claimed: Declared, found: Declared) -> bool:
    if claimed.refusal or found.refusal:
        return True
    if claimed.element and found.element and claimed.element != found.element:
        return False
    if claimed.shape is None or found.shape is None:
        return True
    pairs = zip(claimed.shape, found.shape, strict=False)
    return len(claimed.shape) == len(found.shape) and all(a == b for a, b in pairs if None not in (a, b))


def _confirms(found: Declared) -> bool:
    return bool(found.refusal) or (found.shape is not None and None not in found.shape)


def _claim(claimed: Declared) -> str:
    if claimed.shape is None:
        return "does not say"
    if all(dim is not None for dim in claimed.shape):
        return f"says {format_type(claimed)}"
    return f"says no more than {format_type(claimed)}"


def _is_whole(claimed: Declared, symbols: SymbolTable) -> bool:
    return (
        claimed.element is not None
        and claimed.shape is not None
        and all(map(symbols.is_known, claimed.shape))
    )


def _first_cause(complaint: str) -> str:
    """The node at which inference failed, without those that fail because of it."""
    causes = (line.strip() for line in complaint.splitlines() if "(op_type:" in line)
    return next((line for line in causes if "instead is null" not in line), "")


def _best(probes: list[Probe], known: list[Declared]) -> str:
    if not probes:
        return "there is nothing to try it with"
    found = f"{probes[0].sentence()}ONNX shape inference finds {format_type(known[0])}"
    return f"{found}\n{probes[0].complaint}".rstrip()

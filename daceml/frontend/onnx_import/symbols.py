"""dace symbols for the named dimensions of an ONNX model."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import dace
import sympy

from daceml.frontend.onnx_import.declared_types import Declared, DeclaredDim
from daceml.frontend.onnx_import.identifiers import Names, identifier
from daceml.sdfg.rounded_division import ceil_div, floor_div, floor_mod, never_negative
from daceml.sdfg.sizes import fraction as parts
from daceml.sdfg.sizes import size

# An int, or a sympy expression in dace symbols; sympy's own annotations are too narrow to name here.
Dim = Any


class SymbolTable:
    """dace symbols for dim_param texts: positive int64, one for each name, names that dace can parse."""

    def __init__(self, parameters: Iterable[str], names: Names, values: Mapping[str, int]) -> None:
        self._names = names
        self._values = values
        self._symbols: dict[str, dace.symbol] = {}
        self._parsed: dict[str, Dim] = {}
        self._texts = set(parameters)
        self._bare = {text for text in self._texts if text.isidentifier()}
        self.bound: set[str] = set()

    def dim(self, declared: int | str) -> Dim:
        """A number or expression; `batch-size` is one name unless `batch` and `size` are names, too."""
        if isinstance(declared, int):
            return declared
        if declared not in self._parsed:
            self._parsed[declared] = self._parse(declared)
        return self._parsed[declared]

    def resolve(self, entry: Declared) -> Declared:
        """The same with dimensions that the given values decide as numbers."""
        if entry.shape is None or not self._values:
            return entry
        dims = ((dim, self.dim(dim) if isinstance(dim, str) else dim) for dim in entry.shape)
        shape = tuple(value if isinstance(value, int) else dim for dim, value in dims)
        return replace(entry, shape=shape)

    def names(self) -> list[str]:
        """Named dimensions of the model."""
        return sorted(self._bare)

    def unknown_values(self) -> list[str]:
        """Names that a value was given for and that the model does not have."""
        return sorted(set(self._values) - self._texts)

    def bind(self, shape: Iterable[DeclaredDim]) -> None:
        """Take the symbols of a graph input's shape as known at call time."""
        for declared in shape:
            if isinstance(declared, str):
                self.bound |= free_symbol_names(self.dim(declared))

    def is_known(self, declared: DeclaredDim) -> bool:
        """Whether a dimension has a value once the shapes of the inputs are known."""
        if isinstance(declared, str):
            return free_symbol_names(self.dim(declared)) <= self.bound
        return declared is not None

    def free(self, entry: Declared) -> set[str]:
        """Names of the symbols in a shape."""
        dims = (self.dim(dim) for dim in entry.shape or () if dim is not None)
        return set().union(*map(free_symbol_names, dims))

    def named(self, symbol: str) -> Dim:
        """The symbol of that name, as `free` gives it."""
        return next(known for known in self._symbols.values() if str(known) == symbol)

    def text(self, dim: Dim) -> DeclaredDim:
        """A dimension that was computed, in the form of a declared one."""
        if isinstance(dim, int) or dim.is_Integer:
            return int(str(dim))
        self._parsed.setdefault(str(dim), dim)
        return str(dim)

    def _symbol(self, name: str) -> dace.symbol:
        if name not in self._symbols:
            text = identifier(name)
            # sympy knows many plain words (test, shape, rad, beta): dace could not parse such a symbol back.
            prefixed = text if len(text) == 1 or not hasattr(sympy, text) else f"dim_{text}"
            self._symbols[name] = dace.symbol(self._names.fresh(prefixed), dace.int64, positive=True)
        return self._symbols[name]

    def _parse(self, text: str) -> Dim:
        if text in self._values:
            return int(self._values[text])
        if text in self._bare or not self._is_expression(text):
            return self._symbol(text)
        try:
            return size(_evaluated(ast.parse(text, mode="eval").body, self._leaf))
        except (ArithmeticError, TypeError, ValueError, AttributeError, sympy.SympifyError):
            return self._symbol(text)

    def _leaf(self, name: str) -> Dim:
        return int(self._values[name]) if name in self._values else self._symbol(name)

    def _is_expression(self, text: str) -> bool:
        """Arithmetic on names, and nothing else: what is read here is evaluated as Python."""
        try:
            tree = ast.parse(text, mode="eval").body if len(text) <= _LONGEST else ast.Name(id=text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        nodes = list(_operands(tree))
        if isinstance(tree, ast.Name) or len(nodes) > _MOST_TERMS or not all(map(_is_arithmetic, nodes)):
            return False
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        only_hyphens = all(
            isinstance(n, ast.Name) or (isinstance(n, ast.BinOp) and isinstance(n.op, ast.Sub)) for n in nodes
        )
        return names <= self._bare or not only_hyphens


_LONGEST = 1000
_MOST_TERMS = 200
_MOST_PARTS = 2**20


def _divided(value: Any, divisor: Any) -> Any:
    if divisor == 0:
        raise ZeroDivisionError(f"{value} / 0")
    return sympy.sympify(value) / divisor


def _exact(value: float) -> Any:
    """A number with which products of sizes are exact in float64, too: 0.75 is one, and 0.7 is none."""
    above, below = value.as_integer_ratio()
    if below > _MOST_PARTS:
        raise ValueError(f"{value} is rounded")
    return sympy.Rational(above, below)


def _by_parts(divide: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda fraction: divide(*parts(fraction))


def _truncated(fraction: Any) -> Any:
    above, below = parts(fraction)
    if not never_negative(above):
        raise ValueError(f"{fraction} may be below 0")
    return floor_div(above, below)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(["Abs", "abs"], sympy.Abs),
    **dict.fromkeys(["Max", "max"], sympy.Max),
    **dict.fromkeys(["Min", "min"], sympy.Min),
    **dict.fromkeys(["Mod", "PythonMod"], floor_mod),
    **dict.fromkeys(["int_floor", "FloorDiv", "CleanDiv"], floor_div),
    **dict.fromkeys(["int_ceil", "CeilDiv"], ceil_div),
    **dict.fromkeys(["floor", "FloorToInt"], _by_parts(floor_div)),
    **dict.fromkeys(["ceiling", "CeilToInt"], _by_parts(ceil_div)),
    "TruncToInt": _truncated,
    "IntTrueDiv": _divided,
    "ToFloat": lambda value: value,
    "PowByNatural": lambda base, power: base**power,
}
"""What the text of a size may call: names of SymPy, DaCe and torch."""

_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
    ast.Div: _divided,
    ast.FloorDiv: floor_div,
    ast.Mod: floor_mod,
}


def _evaluated(tree: ast.AST, leaf: Callable[[str], Any]) -> Any:
    """What arithmetic on names comes to; `leaf` gives the value of a name."""
    match tree:
        case ast.Name(id=name):
            return leaf(name)
        case ast.Constant(value=int() | float() as value):
            return _exact(value)
        case ast.UnaryOp(op=sign, operand=operand):
            value = _evaluated(operand, leaf)
            return -value if isinstance(sign, ast.USub) else value
        case ast.BinOp(left=left, op=operation, right=right):
            return _OPERATIONS[type(operation)](_evaluated(left, leaf), _evaluated(right, leaf))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name](*(_evaluated(argument, leaf) for argument in arguments))
        case _:
            raise ValueError(ast.dump(tree))


def _operands(tree: ast.AST) -> Iterator[ast.AST]:
    """An expression and what it is made of; the names of functions that it calls are left out."""
    yield tree
    children = tree.args if isinstance(tree, ast.Call) else ast.iter_child_nodes(tree)
    for child in children:
        if not isinstance(child, ast.operator | ast.unaryop | ast.expr_context):
            yield from _operands(child)


def _is_arithmetic(node: ast.AST) -> bool:
    match node:
        case ast.Name(id=name):
            return name.isascii()
        case ast.Constant(value=value):
            return type(value) is int or (type(value) is float and math.isfinite(value))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            return True
        case ast.BinOp(op=ast.Pow(), left=ast.Name(), right=ast.Constant(value=int(power))):
            return 0 <= power <= 8
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.FloorDiv() | ast.Mod()):
            return True
        case ast.Call(func=ast.Name(id=name), args=[_, *_], keywords=[]):
            return name in _FUNCTIONS
        case _:
            return False


def free_symbol_names(dim: Dim) -> set[str]:
    """Names of the symbols in a dimension."""
    return set() if isinstance(dim, int) else {str(free) for free in dim.free_symbols}

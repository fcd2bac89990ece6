"""The sizes that a library is right for, as a check in C++ and as texts of its manifest.

A graph with symbolic sizes counts where the conditions hold that tracing it has found: ranges, branches that
forward took, reshapes. `SizeGuard` has them; they are written over sizes of inputs, so that nothing depends
on the names or the order of a program's symbols.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from daceml.errors import DeploymentError

if TYPE_CHECKING:
    from daceml.deployment.interface import Tensor
    from daceml.frontend.capture.sizes.dynamic_shapes import SizeGuard

_RELATIONS = {
    "Equality": "==", "Unequality": "!=", "StrictLessThan": "<", "LessThan": "<=", "StrictGreaterThan": ">",
    "GreaterThan": ">=",
}  # fmt: skip
_JOINED = {"And": " && ", "Or": " || ", "Add": " + ", "Mul": " * "}
# Functions of torch's sizes with the divisor second; both round towards minus infinity, as Python does
_DIVISIONS = {"FloorDiv": "floor_div", "CleanDiv": "floor_div", "Mod": "floor_mod", "PythonMod": "floor_mod"}

_PREAMBLE = """#include <cstdint>
#include <string>

namespace {

// A divisor of 0 has a condition of its own.
[[maybe_unused]] int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
[[maybe_unused]] int64_t floor_mod(int64_t a, int64_t b) { return a - floor_div(a, b) * b; }

"""


@dataclass(frozen=True, kw_only=True)
class SizeConditions:
    """Which sizes of inputs a library takes, besides those that are fixed.

    Attributes:
        symbols: letter -> input and dimension where it is read.
        ranges: letter -> smallest and largest value, None where there is no largest.
        conditions: what must hold, over the letters, as the user reads it.
    """

    symbols: dict[str, tuple[int, int]]
    ranges: dict[str, tuple[int, int | None]]
    conditions: tuple[str, ...]


def size_conditions(guard: SizeGuard | None) -> SizeConditions:
    """The texts of a guard; none of any kind where all sizes are fixed."""
    if guard is None:
        return SizeConditions(symbols={}, ranges={}, conditions=())
    ranges = {str(symbol): guard.ranges[symbol] for symbol in sorted(guard.ranges, key=str)}
    return SizeConditions(
        symbols={str(symbol): place for symbol, place in _places(guard).items()},
        ranges=ranges,
        conditions=tuple(text for text, _ in _conditions(guard)),
    )


def size_check(guard: SizeGuard | None, inputs: Sequence[Tensor]) -> str:
    """The C++ function `refused_sizes`: why the library is not right for sizes of inputs, or nothing.

    Raises:
        DeploymentError: a condition that has no form in C++, or symbols that no input has as a size.
    """
    lines = ["std::string refused_sizes(const int64_t* const* sizes) {", "  (void)sizes;"]
    if guard is not None:
        assert len(guard.shapes) == len(inputs), "a program takes the tensors of the call"
        places = _places(guard)
        names = {s: f"size {d} of {inputs[i].name}" for s, (i, d) in places.items()}
        lines += [
            f"  const int64_t {symbol} = sizes[{i}][{d}]; (void){symbol};"
            for symbol, (i, d) in places.items()
        ]
        for i, shape in enumerate(guard.shapes):
            for d, extent in enumerate(shape):
                if isinstance(extent, int) or places.get(extent) == (i, d):
                    continue
                why = f"size {d} of {inputs[i].name} is not {extent}"
                lines += _refusal(f"sizes[{i}][{d}] != {_cpp(extent)}", why, extent, names)
        for symbol in sorted(guard.ranges, key=str):
            low, high = guard.ranges[symbol]
            if symbol not in places:
                raise _without_form(symbol)
            outside = f"{symbol} < {low}" + ("" if high is None else f" || {symbol} > {high}")
            why = f", the model was exported for {low} to {'any' if high is None else high}"
            lines.append(
                f"  if ({outside}) return {_text(f'{names[symbol]} is ')} + "
                f"std::to_string({symbol}) + {_text(why)};"
            )
        for text, condition in _conditions(guard):
            why = f"the model was exported for {text}, which does not hold"
            lines += _refusal(f"!{_cpp(condition)}", why, condition, names)
    lines += ['  return "";', "}", "", "}  // namespace", ""]
    return _PREAMBLE + "\n".join(lines)


def _refusal(unless: str, why: str, about: Any, names: Mapping[Any, str]) -> list[str]:
    """A line that gives a reason, with the values of the letters that it is about."""
    symbols = sorted(about.free_symbols, key=str)
    if any(symbol not in names for symbol in symbols):
        raise _without_form(about)
    values = ""  # none of a size that tracing has found to be fixed: that is a number, about no letter
    for number, symbol in enumerate(symbols):
        text = f"{', ' if number else ': '}{symbol} ({names[symbol]}) is "
        values += f" + {_text(text)} + std::to_string({symbol})"
    return [f"  if ({unless}) return {_text(why)}{values};"]


def _places(guard: SizeGuard) -> dict[Any, tuple[int, int]]:
    """Where each symbol is a size of an input by itself."""
    found: dict[Any, tuple[int, int]] = {}
    for i, shape in enumerate(guard.shapes):
        for d, extent in enumerate(shape):
            if not isinstance(extent, int) and extent.is_Symbol:
                found.setdefault(extent, (i, d))
    return found


def _conditions(guard: SizeGuard) -> list[tuple[str, Any]]:
    import sympy

    return [(str(condition), condition) for condition in guard.conditions if condition is not sympy.true]


def _cpp(expression: Any) -> str:
    """A condition, or a size, as C++ over letters of type int64_t.

    Raises:
        DeploymentError: it has no form that is exact in whole numbers.
    """
    kind = type(expression).__name__
    if expression.is_Symbol:
        return str(expression)
    if expression.is_Integer:
        return f"INT64_C({int(expression)})"
    if kind in _RELATIONS:
        left, right = _whole(expression.lhs, expression.rhs)
        return f"({left} {_RELATIONS[kind]} {right})"
    if kind in _JOINED:
        return "(" + _JOINED[kind].join(map(_cpp, expression.args)) + ")"
    if kind == "Not":
        return f"(!{_cpp(expression.args[0])})"
    if kind in _DIVISIONS:
        return f"{_DIVISIONS[kind]}({', '.join(map(_cpp, expression.args))})"
    if kind == "ModularIndexing":
        base, divisor, modulus = map(_cpp, expression.args)
        return f"floor_mod(floor_div({base}, {divisor}), {modulus})"
    if kind in ("Max", "Min"):
        sign, texts = ">" if kind == "Max" else "<", list(map(_cpp, expression.args))
        found = texts[0]
        for text in texts[1:]:
            found = f"({found} {sign} {text} ? {found} : {text})"
        return found
    if kind in ("Pow", "PowByNatural") and expression.args[1].is_Integer and 0 < int(expression.args[1]) < 9:
        return "(" + " * ".join([_cpp(expression.args[0])] * int(expression.args[1])) + ")"
    if kind in ("CeilToInt", "FloorToInt") and type(expression.args[0]).__name__ == "IntTrueDiv":
        above, below = map(_cpp, expression.args[0].args)
        return f"(-floor_div(-{above}, {below}))" if kind == "CeilToInt" else f"floor_div({above}, {below})"
    raise _without_form(expression)


def _whole(left: Any, right: Any) -> tuple[str, str]:
    """Both sides of a relation, times what makes their coefficients whole numbers."""
    import sympy

    fractions = [n for side in (left, right) for n in side.atoms(sympy.Rational) if not n.is_Integer]
    if not fractions:
        return _cpp(left), _cpp(right)
    factor = sympy.ilcm(1, *(n.q for n in fractions))
    return _cpp(sympy.expand(left * factor)), _cpp(sympy.expand(right * factor))


def _text(value: str) -> str:
    """A std::string of C++."""
    return f"std::string({json.dumps(value)})"


def _without_form(condition: Any) -> DeploymentError:
    return DeploymentError(
        f"a library cannot check {condition}",
        why="the model is right only for sizes of which this holds",
        fix="export it for fixed sizes, without dynamic=True (--dynamic)",
    )

"""Sizes: an int where a dimension is static, else a SymPy expression over the network's symbols."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import sympy
from dace import symbolic
from dace.symbolic import symstr

if TYPE_CHECKING:
    import dace

Size = int | sympy.Expr


def size(value: object) -> Size:
    """A DaCe shape entry as a plain int where it is one."""
    if isinstance(value, int):
        return value
    expression: Any = sympy.sympify(value)
    return int(expression) if expression.is_Integer else expression


def number(value: Size, symbols: Mapping[str, int]) -> int:
    """A size at given values of the symbols; 0 where these are so small that it divides by 0."""
    if isinstance(value, int):
        return value
    numbers = {s: sympy.Integer(symbols[str(s)]) for s in value.free_symbols}
    replaced: Any = value.xreplace(numbers)
    try:
        return int(replaced)
    except ZeroDivisionError:
        return 0


def number_of_all(value: Size, symbol: int) -> int:
    """A size where every symbol has the same value."""
    names = () if isinstance(value, int) else value.free_symbols
    return number(value, {str(name): symbol for name in names})


def renamed(value: Size, names: Mapping[str, sympy.Symbol]) -> Size:
    """A size with other symbols; different symbols stay different.

    Args:
        names: name of a symbol -> the symbol that replaces it.
    """
    if isinstance(value, int):
        return value
    return _rebuilt(value, {symbol: names[str(symbol)] for symbol in value.free_symbols})


def _rebuilt(value: Any, symbols: Mapping[Any, Any]) -> Any:
    if not value.has(sympy.Min, sympy.Max):
        return value.xreplace(symbols)
    parts = [_rebuilt(part, symbols) for part in value.args]
    # SymPy would search once more for the largest or the smallest
    as_before = {"evaluate": False} if isinstance(value, sympy.Min | sympy.Max) else {}
    return value.func(*parts, **as_before)


def product(sizes: Iterable[Size]) -> Size:
    """Number of elements of a box."""
    result: Size = 1
    for factor in sizes:
        result = result * factor
    return result


def size_bytes(desc: dace.data.Data) -> Size:
    """Bytes of a contiguous array; symbolic where its shape is."""
    return product(size(s) for s in desc.shape) * desc.dtype.bytes


def spanned_bytes(desc: dace.data.Data) -> Size:
    """Bytes from the first element of a strided array to its last; symbolic where its shape is."""
    sizes = tuple(size(s) for s in desc.shape)
    if 0 in sizes:
        return 0
    last = sum(((n - 1) * size(step) for n, step in zip(sizes, desc.strides, strict=True)), start=0)
    return (last + 1) * desc.dtype.bytes


def row_major(sizes: Iterable[Size]) -> tuple[Size, ...]:
    """Strides, in elements, of a contiguous array."""
    sizes = tuple(sizes)
    return tuple(product(sizes[d + 1 :]) for d in range(len(sizes)))


def channels_last(sizes: Iterable[Size]) -> tuple[Size, ...]:
    """Strides, in elements, of [batch, channels, height, width] with the channels innermost."""
    _, channels, height, width = sizes
    return (height * width * channels, 1, width * channels, channels)


def fraction(value: Any) -> tuple[Any, Any]:
    """Numerator and denominator, which is 1 unless something is divided without rounding."""
    return sympy.fraction(sympy.together(sympy.sympify(value)))


def text(value: Size) -> str:
    """The size as Python over the symbols' names and `Max`, `Min`, `Abs` and `int_floor`."""
    if isinstance(value, int):
        return str(value)
    above, below = fraction(value)
    return str(value) if below == 1 else f"int_floor({above}, {below})"


def cpp(value: Size) -> str:
    """The size as a C++ expression of type int64_t over the symbols' names."""
    if isinstance(value, int):
        return f"INT64_C({value})"
    above, below = fraction(value)
    # halves that are whole together are divided together
    whole = value if below == 1 else symbolic.int_floor(above, below)
    return f"(int64_t)({symstr(whole, cpp_mode=True)})"

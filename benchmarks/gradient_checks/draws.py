"""Random uses of differentiable torch functions, as data: tensors, attributes and the element type.

Shapes have sizes 0 and 1 and differ in every dimension, axes count from either end, ranks go down to 0. A row
of the table draws one use; the same number gives the same use.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from benchmarks.operators.draws import Array, Chance

# Most uses are in float64, where any difference is a fault and no rounding.
_DTYPES = ("float64",) * 13 + ("float32",) * 5 + ("bfloat16",) * 2


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One use of a function.

    Attributes:
        call: takes the tensors, then the attributes by name.
        formula: what eager runs instead, where torch's own gradient of the function is not exact.
        tensors: floats are float64 here and become `dtype`.
        fixed: positions of float tensors without a gradient.
        contiguous: positions of tensors that have no strides of their own, for eager reads them wrongly.
        smooth: whether finite differences give the gradient: no ties, no kinks nearby.
        double_only: whether other element types draw other random numbers.
        function: the row that drew it.
    """

    call: Callable[..., Any]
    formula: Callable[..., Any] | None = None
    tensors: Sequence[Array]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    fixed: frozenset[int] = frozenset()
    contiguous: frozenset[int] = frozenset()
    smooth: bool = True
    double_only: bool = False
    dtype: str = "float64"
    function: str = ""

    def describe(self) -> str:
        """The use in one line, values left out."""
        given = [f"{a.dtype if a.dtype.kind != 'f' else self.dtype}{list(a.shape)}" for a in self.tensors]
        attributes = ", ".join(f"{name}={value!r}" for name, value in self.attributes.items())
        return f"{self.function}({', '.join(given)}; {attributes})"

    def as_formula(self) -> Draw:
        """The use as eager is to run it."""
        return self if self.formula is None else replace(self, call=self.formula)

    def torch_dtype(self) -> torch.dtype:
        """What its floats become."""
        return getattr(torch, self.dtype)


Row = Callable[[Chance], Draw]
ROWS: dict[str, Row] = {}


def uses(*names: str) -> Callable[[Callable[[Chance, str], Draw]], Callable[[Chance, str], Draw]]:
    """Enter a function into the table under names; it is told which of them is meant."""

    def register(function: Callable[[Chance, str], Draw]) -> Callable[[Chance, str], Draw]:
        for name in names:
            assert name not in ROWS, name
            ROWS[name] = lambda chance, name=name: function(chance, name)
        return function

    return register


@functools.cache
def load_rows() -> None:
    """Fill the table."""
    from benchmarks.gradient_checks import families

    for module in pkgutil.iter_modules(families.__path__):
        importlib.import_module(f"{families.__name__}.{module.name}")


def draw(number: int) -> Draw:
    """The use of this number; neighbours are of different functions."""
    load_rows()
    names = sorted(ROWS)
    function = names[number % len(names)]
    chance = Chance(number + 2_000_000)
    dtype = chance.of(_DTYPES)
    found = ROWS[function](chance)
    return replace(found, function=function, dtype="float64" if found.double_only else dtype)


def real(c: Chance, shape: Sequence[int]) -> Array:
    """Values of size one, no two of which are equal."""
    return c.values(shape, "float64")


def tied(c: Chance, shape: Sequence[int]) -> Array:
    """Multiples of a half from -2 to 2: zeros, ties and bounds."""
    return np.clip(np.round(c.values(shape, "float64")) / 2, -2, 2)


def apart(c: Chance, shape: Sequence[int]) -> Array:
    """Values in any order that differ by a quarter at least, none near a multiple of a half."""
    count = int(np.prod(tuple(shape), dtype=int))
    return (np.asarray(c.permutation(count), np.float64) / 4 - count / 8 + 0.06).reshape(tuple(shape))


def kinked(c: Chance, shape: Sequence[int]) -> tuple[Array, bool]:
    """Values for a function with kinks, and whether it is smooth there."""
    return (tied(c, shape), False) if c.one_in(2) else (apart(c, shape), True)

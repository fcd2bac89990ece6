"""Random uses of ONNX operators, as data: attributes, shapes, element types and values.

Shapes have sizes 0 and 1 and differ in every dimension, axes count from either end, ranks go down to 0. A row
of the table draws one use; the same number gives the same use.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 20
Array = np.ndarray[Any, Any]

FLOATS = ("float32", "float32", "float32", "float64", "float16")
INTEGERS = ("int32", "int64", "int64", "int8", "uint8")


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One use of an operator.

    Attributes:
        op_type: of the default domain.
        inputs: in order; None for one that is left out.
        attributes: of the node.
        constants: positions of inputs that are constants of the model.
        outputs: how many results are asked for.
        exact: whether results have to be equal, NaN included; else up to rounding.
        terms: how many numbers are added up for one result, which rounding grows with.
    """

    op_type: str
    inputs: Sequence[Array | None]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    constants: frozenset[int] = frozenset()
    outputs: int = 1
    exact: bool = False
    terms: int = 1

    def describe(self) -> str:
        """The use in one line, values left out."""
        given = [
            "-" if array is None else f"{array.dtype}{list(array.shape)}{'c' if i in self.constants else ''}"
            for i, array in enumerate(self.inputs)
        ]
        attributes = ", ".join(f"{name}={value!r}" for name, value in self.attributes.items())
        return f"{self.op_type}({', '.join(given)}; {attributes})"


class Chance:
    """A stream of choices."""

    def __init__(self, seed: int) -> None:
        self._numbers = np.random.default_rng([seed, 0x0DACE])

    def one_in(self, n: int) -> bool:
        """True once in n times."""
        return bool(self._numbers.integers(n) == 0)

    def of(self, options: Sequence[Any]) -> Any:
        """One of several."""
        return options[int(self._numbers.integers(len(options)))]

    def between(self, least: int, most: int) -> int:
        """A number, bounds included."""
        return int(self._numbers.integers(least, most + 1))

    def size(self, *, empty: bool = True) -> int:
        """A size: seldom 0, often 1 or odd."""
        if empty and self.one_in(25):
            return 0
        return self.of((1, 1, 2, 3, 3, 4, 5, 7, 8, 11))

    def shape(self, least: int = 0, most: int = 4, *, empty: bool = True) -> tuple[int, ...]:
        """Sizes for a rank between the bounds."""
        return tuple(self.size(empty=empty) for _ in range(self.between(least, most)))

    def axis(self, rank: int) -> int:
        """An axis, from either end."""
        return self.between(-rank, rank - 1)

    def axes(self, rank: int, *, none: bool = False) -> list[int]:
        """Different axes, from either end, in any order."""
        count = self.between(0 if none else min(1, rank), rank)
        chosen = self._numbers.permutation(rank)[:count]
        return [int(a) - (rank if self.one_in(2) else 0) for a in chosen]

    def values(self, shape: Sequence[int], dtype: str, *, special: bool = False) -> Array:
        """Values of size one, small integers; some floats are zeros, infinities or NaN if asked for."""
        shape = tuple(shape)
        if dtype == "bool":
            return self._numbers.integers(0, 2, shape).astype(bool)
        if dtype.startswith(("int", "uint")):
            low = 0 if dtype.startswith("u") else -9
            return self._numbers.integers(low, 10, shape).astype(dtype)
        found = np.asarray(self._numbers.standard_normal(shape) * 2)
        if special and found.size:
            at = self._numbers.integers(0, 12, shape)
            for number, value in enumerate((0.0, -0.0, np.inf, -np.inf, np.nan)):
                found = np.where(at == number, value, found)
        return found.astype(dtype)

    def positive(self, shape: Sequence[int], dtype: str) -> Array:
        """Values from 0.1 to 3."""
        return self._numbers.uniform(0.1, 3.0, tuple(shape)).astype(dtype)

    def within(self, shape: Sequence[int], dtype: str, low: float, high: float) -> Array:
        """Values between two bounds."""
        return self._numbers.uniform(low, high, tuple(shape)).astype(dtype)

    def indices(self, shape: Sequence[int], extent: int, *, negative: bool = True) -> Array:
        """Positions in [-extent, extent), or [0, extent)."""
        low = -extent if negative else 0
        return self._numbers.integers(low, extent, tuple(shape)).astype(self.of(("int64", "int32")))

    def permutation(self, n: int) -> list[int]:
        """The numbers below n in any order."""
        return [int(i) for i in self._numbers.permutation(n)]

    def broadcast(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to this one: dimensions of 1, and fewer of them."""
        kept = [1 if self.one_in(3) else n for n in shape]
        return tuple(kept[self.between(0, len(kept)) :] if self.one_in(2) else kept)

    def constant(self, *positions: int) -> frozenset[int]:
        """Which of the inputs are constants of the model: mostly all."""
        return frozenset() if self.one_in(4) else frozenset(positions)


Row = Callable[[Chance], Draw]
ROWS: dict[str, Row] = {}


def draws(*names: str) -> Callable[[Callable[[Chance, str], Draw]], Callable[[Chance, str], Draw]]:
    """Enter a function into the table under the names of operators; it is told which of them is meant."""

    def register(function: Callable[[Chance, str], Draw]) -> Callable[[Chance, str], Draw]:
        for name in names:
            ROWS[name] = lambda chance, name=name: function(chance, name)
        return function

    return register


@functools.cache
def load_rows() -> None:
    """Import every family, which fills the table."""
    package = importlib.import_module("benchmarks.operators.families")
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{found.name}")


def draw(number: int) -> Draw:
    """The use with this number; every operator of the table comes in turn."""
    load_rows()
    names = sorted(ROWS)
    return ROWS[names[number % len(names)]](Chance(number))


def model_of(uses: Sequence[Draw], results: Sequence[Sequence[Array]] | None = None) -> onnx.ModelProto:
    """One model with each use beside the others; inputs are `x<use>_<input>`, results `y<use>_<output>`.

    Args:
        results: of each use, whose types the model then declares; else those that ONNX infers.
    Raises:
        ValueError: an attribute has no ONNX form.
    """
    nodes: list[onnx.NodeProto] = []
    inputs: list[onnx.ValueInfoProto] = []
    declared: list[onnx.ValueInfoProto] = []
    initializers: list[onnx.TensorProto] = []
    for number, use in enumerate(uses):
        names: list[str] = []
        for position, array in enumerate(use.inputs):
            name = "" if array is None else f"x{number}_{position}"
            names.append(name)
            if array is None:
                continue
            if position in use.constants:
                initializers.append(numpy_helper.from_array(array, name))
            else:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                inputs.append(helper.make_tensor_value_info(name, kind, array.shape))
        outputs = [f"y{number}_{i}" for i in range(use.outputs)]
        nodes.append(helper.make_node(use.op_type, names, outputs, **use.attributes))
        for i, name in enumerate(outputs):
            if results is None:
                declared.append(onnx.ValueInfoProto(name=name))
            else:
                array = results[number][i]
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                declared.append(helper.make_tensor_value_info(name, kind, array.shape))
    graph = helper.make_graph(nodes, "uses", inputs, declared, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    if results is not None:
        return model
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    known = {value.name: value for value in inferred.graph.value_info}
    for output in inferred.graph.output:
        if not output.type.tensor_type.elem_type and output.name in known:
            output.CopyFrom(known[output.name])
    return inferred


def feeds_of(uses: Sequence[Draw]) -> dict[str, Array]:
    """The inputs of `model_of` that are no constants."""
    return {
        f"x{number}_{position}": array
        for number, use in enumerate(uses)
        for position, array in enumerate(use.inputs)
        if array is not None and position not in use.constants
    }

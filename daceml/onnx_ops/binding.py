"""The operands and attributes of one node, as implementations take them by name."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from daceml.onnx_ops.registry import Implementation
from daceml.onnx_ops.schema.element_types import BY_DACE_TYPE
from daceml.onnx_ops.schema.operands import Operand, operands
from daceml.onnx_ops.tracing.indexing import Position, as_shape
from daceml.onnx_ops.tracing.tensor import Output, Tensor, element_reader
from daceml.onnx_ops.tracing.trace import Refused, Trace
from daceml.sdfg.scalar import DType, Index, Scalar, literal

if TYPE_CHECKING:
    from daceml.onnx_ops.schema.node import ONNXNode
    from daceml.sdfg.network import Network

Actual = Tensor | tuple[Tensor | None, ...] | None


@dataclass(frozen=True, kw_only=True)
class Binding:
    """Everything an implementation may ask about its node.

    Attributes:
        inputs, outputs: formal name -> tensor, tensors of a variadic formal, or None for an absent optional.
        attributes: values with the schema's defaults filled in, `since_version`, and the network's
            `architecture`; None is absent.
        defaults: the schema's defaults.
        interface: arrays that the network's caller sees.
    """

    inputs: Mapping[str, Actual]
    outputs: Mapping[str, Actual]
    attributes: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    interface: frozenset[str] = frozenset()

    def arguments(self, function: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of a function.

        A positional parameter is an input, an output, an attribute of the same name (a constant tensor: older
        versions of an operator have attributes where newer ones have inputs), or None.
        """
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for parameter in _parameters(function):
            name = parameter.name
            if parameter.kind is parameter.KEYWORD_ONLY:
                value = self.attributes.get(name)
                keywords[name] = (
                    parameter.default if value is None and parameter.default is not parameter.empty else value
                )
            elif name in self.inputs or name in self.outputs:
                positional.append(self.inputs[name] if name in self.inputs else self.outputs[name])
            else:
                positional.append(_constant(self.attributes.get(name)))
        return positional, keywords

    def call(self, function: Callable[..., Any]) -> Any:
        """The function's answer for this node."""
        positional, keywords = self.arguments(function)
        return function(*positional, **keywords)

    def refusal(self, implementation: Implementation) -> str | None:
        """Why an implementation cannot take this node, as far as can be said without tracing it."""
        taken = {*implementation.formals, *implementation.attributes}
        for side, actuals in (("input", self.inputs), ("output", self.outputs)):
            for name, actual in actuals.items():
                if _present(actual) and name not in taken and not _takes_everything(implementation):
                    return f"it does not take {side} {name}"
        for name, value in self.attributes.items():
            if (
                name not in taken
                and not _is_default(value, self.defaults.get(name))
                and not _takes_everything(implementation)
            ):
                return f"it does not take attribute {name}={value!r}"
        if implementation.when is None:
            return None
        try:
            answer = self.call_by_name(implementation.when)
        except Refused as refusal:
            return str(refusal)
        return answer

    def shape_is_known(self, implementation: Implementation) -> bool:
        """Whether what decides the shape of the results is constant, so that the function compares it."""
        deciding = [self.inputs.get(name) for name in implementation.shape_from]
        return bool(deciding) and all(isinstance(t, Tensor) and t.value is not None for t in deciding)

    def call_by_name(self, question: Callable[..., Any]) -> Any:
        """The answer of a function that takes operands and attributes by name."""
        known = {**self.attributes, **self.outputs, **self.inputs}
        return question(**{name: known.get(name) for name in (p.name for p in _parameters(question))})


def bind(node: ONNXNode, network: Network, trace: Trace | None = None) -> Binding:
    """The binding of a node of a network."""
    sdfg = network.sdfg
    found = operands(node, network.state, sdfg)

    def shape_of(name: str) -> tuple[Any, ...]:
        return () if name in network.scalars else as_shape(sdfg.arrays[name].shape)

    def tensor(name: str) -> Tensor:
        value, sizes = network.constants.get(name), network.sizes.get(name)
        return operand(name, sdfg.arrays[name].dtype, shape_of(name), value, sizes)

    outputs = [a for side in found.outputs.values() for a in _names(side)]
    own = trace or Trace(node.op_type, sdfg.arrays)
    own.stem = "_".join((node.op_type.lower(), *outputs[:1]))
    own.known_sizes |= {str(s) for a in outputs for s in as_shape(sdfg.arrays[a].shape)}
    defaults = {name: attribute.default for name, attribute in node.schema.attributes.items()}
    known = {"since_version": node.since_version, "architecture": network.architecture}
    return Binding(
        inputs={formal: _actual(name, tensor) for formal, name in found.inputs.items()},
        outputs={
            formal: _actual(name, lambda n: Output(shape_of(n), sdfg.arrays[n].dtype, n, own))
            for formal, name in found.outputs.items()
        },
        attributes={**node.attribute_values(), **known},
        defaults={**defaults, **known},
        interface=frozenset((*network.inputs, *network.outputs, *network.weights, *network.mutations)),
    )


@functools.cache
def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(function).parameters.values())


def _actual(name: Operand, make: Callable[[str], Tensor]) -> Actual:
    if isinstance(name, tuple):
        return tuple(None if n is None else make(n) for n in name)
    return None if name is None else make(name)


def _names(name: Operand) -> tuple[str, ...]:
    return tuple(n for n in (name if isinstance(name, tuple) else (name,)) if n is not None)


def _constant(value: Any) -> Tensor | None:
    if value is None:
        return None
    array = np.asarray(value, dtype=np.int64 if _whole(value) else np.float32)
    return constant(array, next(t for t, row in BY_DACE_TYPE.items() if row.numpy_type == array.dtype))


def _whole(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "iub"


def _is_default(value: Any, default: Any) -> bool:
    return value is None or bool(np.all(value == default)) if default is not None else value is None


def _present(actual: Actual) -> bool:
    return len(actual) > 0 if isinstance(actual, tuple) else actual is not None


def _takes_everything(implementation: Implementation) -> bool:
    return implementation.kind == "onnxruntime"


def operand(
    array: str,
    dtype: DType,
    shape: Sequence[Index],
    value: np.ndarray | None = None,
    sizes: tuple[Index, ...] | None = None,
) -> Tensor:
    """A tensor that is in an array; a constant whose elements are all the same becomes a literal.

    Other small constants are read: as `static constexpr` of 3, 5 or 16 elements they take 0.97 to 1.05 of the
    time, of 4 even 1.6. A NaN whose bits say something is read, too, as a literal has none.
    """
    if value is not None and _is_one_number(value):
        element = value.reshape(-1)[0]
        return Tensor(shape, dtype, lambda _: literal(element, dtype), value=value, array=array)
    reader = element_reader(array, dtype, shape)
    return Tensor(shape, dtype, reader, value=value, sizes=sizes, array=array)


def _is_one_number(value: np.ndarray) -> bool:
    """Whether all elements have the same bits, which a literal has, too."""
    if value.size == 0:
        return False
    flat = np.ascontiguousarray(value).reshape(-1)
    first = flat[:1]
    if first.dtype.kind in "fV" and np.isnan(first[0]) and first.tobytes() != _nan(first.dtype).tobytes():
        return False
    rows = flat.view(np.uint8).reshape(flat.size, -1)
    return bool((rows == rows[0]).all())


def _nan(dtype: np.dtype) -> np.ndarray:
    """What C++ makes of NAN."""
    return np.array([math.nan], dtype=dtype)


def constant(value: np.ndarray, dtype: DType) -> Tensor:
    """A tensor known by value only (an attribute); reading elements other than a single one is refused."""
    if value.size == 1:
        return Tensor(value.shape, dtype, lambda _: literal(value.reshape(-1)[0], dtype), value=value)

    def refuse(_: tuple[Position, ...]) -> Scalar:
        raise Refused("the elements of an attribute are not in memory")

    return Tensor(value.shape, dtype, refuse, value=value)

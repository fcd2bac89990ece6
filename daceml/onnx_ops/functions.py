"""ONNX operators as functions of DaCe programs.

    from daceml.onnx_ops import functions as onnx

    @dace.program
    def normalized(x: dace.float32[8, 16], scale: dace.float32[16]):
        return onnx.LayerNormalization(x, scale)

A function takes tensors by position or under ONNX's names, and attributes by name. Where results are passed
(`Y=y`), they are written; else they are made, with the shape and type that ONNX infers, and returned.
`Conv_11` is the Conv of opset 11, `Conv` the newest. A number, list or numpy array in the place of a tensor
is a constant. Each call is one library node, which expands to the loops of a native implementation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dace
import numpy as np
from dace import data
from dace.frontend.common import op_repository
from dace.frontend.python.common import StringLiteral

import daceml.onnx_ops.native_expansion as _  # noqa: F401  (nodes expand in any program from here on)
from daceml.errors import InvalidNodeError
from daceml.onnx_ops.result_types import ResultType, result_types
from daceml.onnx_ops.schema import nodes
from daceml.onnx_ops.schema.element_types import BY_DACE_TYPE
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.schema import Formal
from daceml.onnx_ops.tracing.indexing import as_shape
from daceml.sdfg.access import add_access

_NUMPY_TO_DACE: dict[Any, Any] = {row.numpy_type: dtype for dtype, row in BY_DACE_TYPE.items()}


def __getattr__(name: str) -> type[ONNXNode]:
    """The node class of an operator, which programs call as a function from now on."""
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(nodes, name)
    register_function(f"{__name__}.{name}", found)
    return found


def register_function(name: str, operator: type[ONNXNode]) -> None:
    """Let DaCe programs call an operator under a qualified name, such as `my_package.operators.Conv`."""

    def call(visitor: Any, sdfg: dace.SDFG, state: dace.SDFGState, *args: Any, **kwargs: Any) -> Any:
        return add_operator(sdfg, state, operator, args, kwargs)

    repository: Any = op_repository  # its decorators are typed as if they took a function
    repository.replaces(name)(call)


def add_operator(
    sdfg: dace.SDFG,
    state: dace.SDFGState,
    operator: type[ONNXNode],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> list[str]:
    """Add the node of a call to a state. Mutates the SDFG.

    Args:
        args: operands in the order of the schema: names of arrays, or values of constants; None for an absent
            one. Those that are left over belong to a variadic last one.
        kwargs: operands, results (`data_0__1` for the second of a variadic one) and attributes.
    Returns:
        arrays that were made for results; none where results were passed.
    Raises:
        InvalidNodeError: a call that does not fit the schema, or results of unknown shape.
    """
    call = _Call(operator=operator, args=args, kwargs=kwargs)
    inputs, given = call.operands(sdfg), call.results()
    node = operator(operator.op_type, inputs=inputs, outputs=given, **call.attributes())
    made = {} if given else _made_results(node, sdfg, inputs)
    for connector in made:
        node.add_out_connector(connector)
    state.add_node(node)
    for connector, array in inputs.items():
        state.add_edge(add_access(state, array), None, node, connector, sdfg.make_array_memlet(array))
    for connector, array in {**given, **made}.items():
        state.add_edge(node, connector, add_access(state, array), None, sdfg.make_array_memlet(array))
    node.validate(sdfg, state)
    return list(made.values())


@dataclass(frozen=True, kw_only=True)
class _Call:
    operator: type[ONNXNode]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def operands(self, sdfg: dace.SDFG) -> dict[str, str]:
        """Input connector -> array; constants become arrays."""
        values = self._by_position()
        values |= {c: v for c, v in self.kwargs.items() if self._formal(c, self.operator.schema.inputs)}
        arrays = {c: v for c, v in values.items() if isinstance(v, str) and v in sdfg.arrays}
        first = next((sdfg.arrays[a].dtype for a in arrays.values()), dace.float32)
        return {
            connector: arrays[connector]
            if connector in arrays
            else _constant(sdfg, self.operator, connector, value, first)
            for connector, value in values.items()
            if value is not None
        }

    def results(self) -> dict[str, str]:
        """Output connector -> array that the call names."""
        return {
            name: value for name, value in self.kwargs.items()
            if self._formal(name, self.operator.schema.outputs) and value is not None
        }  # fmt: skip

    def attributes(self) -> dict[str, Any]:
        """Attributes by name; names that are neither operand nor result are refused with them."""
        schema = self.operator.schema
        sides = (schema.inputs, schema.outputs)
        rest = {n: v for n, v in self.kwargs.items() if not any(self._formal(n, side) for side in sides)}
        return {
            name: _plain(value)
            for name, value in rest.items()
            if not (value is None and name in schema.attributes)
        }

    def _by_position(self) -> dict[str, Any]:
        formals = self.operator.schema.inputs
        found: dict[str, Any] = {}
        for place, value in enumerate(self.args):
            last = formals[-1] if formals else None
            if place < len(formals) and formals[place].option != "variadic":
                found[formals[place].connector] = value
            elif last is not None and last.option == "variadic":
                found[f"{last.connector}__{place - len(formals) + 1}"] = value
            else:
                raise InvalidNodeError(
                    f"{self.operator.schema.title} takes {len(formals)} operands, not {len(self.args)}",
                    why="its operands are: " + (", ".join(f.connector for f in formals) or "none"),
                    fix="pass attributes by name",
                )
        if twice := sorted(found.keys() & self.kwargs.keys()):
            raise InvalidNodeError(
                f"{self.operator.schema.title} is given {twice[0]} twice",
                why="it is passed by position and by name",
                fix="pass it once",
            )
        return found

    @staticmethod
    def _formal(name: str, side: Sequence[Formal]) -> bool:
        return any(
            name.startswith(f"{f.connector}__") and name[len(f.connector) + 2 :].isdecimal()
            if f.option == "variadic"
            else name == f.connector
            for f in side
        )


def _plain(value: Any) -> Any:
    """An attribute's value as the frontend gives it, in Python's types."""
    if isinstance(value, StringLiteral):
        return str(value)
    if isinstance(value, bool):
        return int(value)
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value  # pyright: ignore[reportUnknownVariableType]


def _constant(sdfg: dace.SDFG, operator: type[ONNXNode], connector: str, value: Any, like: Any) -> str:
    """A constant of the SDFG; numbers that are not whole take the type of the first tensor."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray("")
    if array.dtype.kind == "f" and not isinstance(value, (np.ndarray, np.generic)):
        array = array.astype(BY_DACE_TYPE[like].numpy_type)
    if array.dtype not in _NUMPY_TO_DACE:
        raise InvalidNodeError(
            f"{operator.schema.title} cannot take {value!r} for {connector}",
            why="it is neither an array of the program nor a number, list or numpy array",
            fix="pass a tensor, or a constant; an operand of another scope is passed as an argument",
        )
    name = sdfg.find_new_constant(f"{operator.op_type.lower()}_{connector}")
    dtype = _NUMPY_TO_DACE[array.dtype]
    desc: Any = data.Array(dtype, array.shape) if array.shape else data.Scalar(dtype)
    desc.transient = True
    sdfg.add_constant(name, array if array.shape else array[()], desc)
    sdfg.add_datadesc(name, desc)
    return name


def _made_results(node: ONNXNode, sdfg: dace.SDFG, inputs: Mapping[str, str]) -> dict[str, str]:
    """New arrays for the results that the schema requires; returns them by connector."""
    formals = node.schema.inputs
    order = [f.connector for f in formals if f.option != "variadic"]
    order += [c for c in inputs if c not in order]
    wanted = [f.connector for f in node.schema.outputs if f.option == "single"]
    if not wanted:  # a variadic one: how many there are is the caller's to say
        raise InvalidNodeError(
            f"the results of {node.schema.title} have to be passed",
            why="how many it has does not follow from its operands",
            fix=f"pass {node.schema.outputs[0].connector}__0=array and so on",
        )
    known: dict[str, Any] = sdfg.constants_prop
    types = result_types(
        node,
        [_type_of(sdfg, inputs[c]) if c in inputs else None for c in order],
        len(wanted),
        {i: np.asarray(known[inputs[c]][1]) for i, c in enumerate(order) if inputs.get(c) in known},
    )
    made: dict[str, str] = {}
    for connector, found in zip(wanted, types, strict=True):
        if found is None:
            raise InvalidNodeError(
                f"the shape of {connector} of {node.schema.title} is not known",
                why="ONNX does not infer it from shapes, types and constants of the operands",
                fix=f"pass an array for it: {connector}=array",
            )
        name = f"{node.op_type.lower()}_{connector}"
        if found.shape:
            made[connector], _ = sdfg.add_transient(name, found.shape, found.dtype, find_new_name=True)
        else:
            made[connector], _ = sdfg.add_scalar(name, found.dtype, transient=True, find_new_name=True)
    return made


def _type_of(sdfg: dace.SDFG, array: str) -> ResultType:
    desc = sdfg.arrays[array]
    shape = () if isinstance(desc, data.Scalar) else as_shape(desc.shape)
    return ResultType(shape=shape, dtype=desc.dtype)

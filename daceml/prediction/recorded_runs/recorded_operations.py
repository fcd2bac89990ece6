"""Which operation each kernel of a trace belongs to: the operator that launched it, with its shapes.

A profiler that records shapes writes an operator's arguments by position; what they are called is a row of
`ARGUMENTS`, for those that decide what is computed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from daceml.operations.database.layout import layout_of
from daceml.operations.database.records import Attribute, Operand, Operation
from daceml.operations.work.operator_work import operator_name, rule_of
from daceml.profiling.trace import EventKind, Trace

_CONVOLUTION = ("", "", "", "stride", "padding", "dilation")
# of PyTorch 2: aten/src/ATen/native/native_functions.yaml; "" is a tensor, or decides nothing
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "convolution": (*_CONVOLUTION, "transposed", "output_padding", "groups"),
    "_convolution": (*_CONVOLUTION, "transposed", "output_padding", "groups"),
    "conv1d": (*_CONVOLUTION, "groups"),
    "conv2d": (*_CONVOLUTION, "groups"),
    "conv3d": (*_CONVOLUTION, "groups"),
    "cudnn_convolution": ("", "", "padding", "stride", "dilation", "groups"),
    "miopen_convolution": ("", "", "", "padding", "stride", "dilation", "groups"),
    "mkldnn_convolution": ("", "", "", "padding", "stride", "dilation", "groups"),
    "convolution_backward": (
        "", "", "", "bias_sizes", "stride", "padding", "dilation", "transposed", "output_padding", "groups",
        "output_mask",
    ),
    "scaled_dot_product_attention": ("", "", "", "", "dropout_p", "is_causal"),
    "_scaled_dot_product_flash_attention": ("", "", "", "dropout_p", "is_causal"),
    "_scaled_dot_product_efficient_attention": ("", "", "", "", "", "dropout_p", "is_causal"),
    "_scaled_dot_product_cudnn_attention": ("", "", "", "", "", "dropout_p", "is_causal"),
    "_flash_attention_forward": ("", "", "", "", "", "", "", "dropout_p", "is_causal"),
    "_scaled_dot_product_flash_attention_backward": (*("",) * 10, "dropout_p", "is_causal"),
    "_flash_attention_backward": (*("",) * 10, "dropout_p", "is_causal"),
    "layer_norm": ("", "normalized_shape"),
    "native_layer_norm": ("", "normalized_shape"),
    "native_group_norm": ("", "", "", "", "", "", "group"),
    "sum": ("", "dim", "keepdim"),
    "mean": ("", "dim", "keepdim"),
    "amax": ("", "dim", "keepdim"),
    "amin": ("", "dim", "keepdim"),
    "max": ("", "dim", "keepdim"),
    "min": ("", "dim", "keepdim"),
    "argmax": ("", "dim", "keepdim"),
    "all": ("", "dim", "keepdim"),
    "any": ("", "dim", "keepdim"),
    "topk": ("", "k", "dim"),
    "index_select": ("", "dim"),
    "embedding_dense_backward": ("", "", "num_weights"),
    "nll_loss_forward": ("", "", "", "reduction"),
    "max_pool2d": ("", "kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "max_pool2d_with_indices": ("", "kernel_size", "stride", "padding", "dilation", "ceil_mode"),
    "avg_pool2d": ("", "kernel_size", "stride", "padding", "ceil_mode"),
    "adaptive_avg_pool2d": ("", "output_size"),
    "_adaptive_avg_pool2d": ("", "output_size"),
}  # fmt: skip
# as C++ calls types of elements, and as numpy does
_DTYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "long int": "int64", "long": "int64", "int": "int32", "short int": "int16", "short": "int16",
    "signed char": "int8", "unsigned char": "uint8", "bool": "bool", "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128", "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz", "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip
_LISTS = ("TensorList", "GenericList")


@dataclass(frozen=True, kw_only=True)
class Launched:
    """What a kernel is a part of.

    Attributes:
        operator: innermost one around the launch that says what it computes, else the innermost; "" for none.
        operation: with shapes; None where they were not recorded.
        event: of the operator: kernels with one event are parts of one call.
    """

    operator: str = ""
    operation: Operation | None = None
    event: int = -1


def recorded_operations(trace: Trace) -> dict[int, Launched]:
    """Event of a kernel, copy or memset -> the operation that launched it; without those nobody launched."""
    events, end_us = trace.events, trace.events.end_us
    of_call: dict[int, Launched] = {}
    stacks: dict[int, list[int]] = {}
    made: dict[int, Launched] = {}
    for event in events.of(EventKind.OPERATOR, EventKind.CALL).tolist():
        stack = stacks.setdefault(int(events.lane[event]), [])
        while stack and end_us[stack[-1]] <= events.start_us[event]:
            stack.pop()
        if events.kind[event] == EventKind.OPERATOR:
            stack.append(event)
        elif stack and events.correlation[event] >= 0:
            operator = _telling(trace, stack)
            if operator not in made:
                made[operator] = _launched(trace, operator)
            of_call[int(events.correlation[event])] = made[operator]
    return {
        event: of_call[correlation]
        for event in events.of(EventKind.KERNEL, EventKind.COPY, EventKind.MEMSET).tolist()
        if (correlation := int(events.correlation[event])) in of_call
    }


def operation_of(name: str, details: Mapping[str, Any]) -> Operation | None:
    """The operation of an operator's event; None where the profiler did not record its shapes."""
    dims, types = details.get("Input Dims"), details.get("Input type", details.get("Input Types"))
    if not isinstance(dims, list) or not isinstance(types, list):
        return None
    shapes, kinds = cast("list[Any]", dims), cast("list[Any]", types)
    if len(shapes) != len(kinds):
        return None
    strides = _column(details.get("Input Strides"), len(shapes))
    values = _column(details.get("Concrete Inputs"), len(shapes))
    known = [_DTYPES[kind] for kind in kinds if isinstance(kind, str) and kind in _DTYPES]
    operands: list[Operand] = []
    attributes: dict[str, Attribute] = {}
    names = ARGUMENTS.get(operator_name(name).removesuffix("_"), ())
    first_list = True
    for place, (shape, kind, stride, value) in enumerate(zip(shapes, kinds, strides, values, strict=True)):
        if kind in _DTYPES and _is_shape(shape):
            operands.append(_operand(shape, _DTYPES[kind], stride))
        elif kind in _LISTS and isinstance(shape, list) and all(map(_is_shape, cast("list[Any]", shape))):
            # profilers do not write the type of a list's tensors: that of the others, or float32
            several = cast("list[list[int]]", shape)
            operands += [_operand(one, known[0] if known else "float32", None) for one in several]
            if first_list:
                attributes["self"], first_list = len(several), False
        elif place < len(names) and names[place] and (parsed := _parsed(value)) is not None:
            attributes[names[place]] = parsed
    return Operation(operator=name, operands=tuple(operands), attributes=attributes)


def _telling(trace: Trace, stack: Sequence[int]) -> int:
    """The innermost operator whose work is known, else the innermost one."""
    for event in reversed(stack):
        details = trace.events.details[event]
        if rule_of(operator_name(trace.name_of(event))) is not None and "Input Dims" in details:
            return event
    return stack[-1]


def _launched(trace: Trace, event: int) -> Launched:
    name = trace.name_of(event)
    return Launched(operator=name, operation=operation_of(name, trace.events.details[event]), event=event)


def _operand(shape: Sequence[int], dtype: str, stride: Any) -> Operand:
    sizes, strides = tuple(shape), tuple(cast("list[int]", stride)) if _is_shape(stride) else ()
    known = len(strides) == len(sizes)  # many traces have no strides
    return Operand(shape=sizes, dtype=dtype, layout=layout_of(sizes, strides) if known else "contiguous")


def _column(values: Any, count: int) -> list[Any]:
    column = cast("list[Any]", values) if isinstance(values, list) else []
    return column if len(column) == count else [None] * count


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(type(one) is int for one in cast("list[Any]", value))


def _parsed(value: Any) -> Attribute | None:
    """A value as profilers write it: "[1, 1]", "True", "0.5"."""
    if not isinstance(value, str) or not value:
        return None
    text = value.replace("True", "true").replace("False", "false")
    text = text + "0" if text.endswith(".") else text
    try:
        read: Any = json.loads(text)
    except ValueError:
        return None
    if isinstance(read, list):
        many = cast("list[Any]", read)
        return (
            tuple(many)
            if many and len({type(one) for one in many}) == 1 and type(many[0]) in (bool, int)
            else None
        )
    return cast("Attribute", read) if isinstance(read, bool | int | float) else None

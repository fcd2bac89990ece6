"""Operators of torch that ONNX does not have: domain `daceml.aten`; `daceml.aten.grad` for their gradients.

An operator is named as torch names its overload, `aten.linalg_inv_ex.default`. Its operands are the tensors
among torch's arguments, then symbolic sizes as tensors of one element; the attribute `call` is the whole call
as `daceml.runtime.torch_fallback` reads it, `draws` says whether it takes numbers from torch's generator, and
`underived` why torch has no derivative of it. Classes are made when they are asked for.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence

from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.nodes import define_family, define_operator, node_class
from daceml.onnx_ops.schema.schema import Attribute, Formal, OperatorSchema

DOMAIN = "daceml.aten"
GRADIENTS = "daceml.aten.grad"


def _variadic(name: str) -> Formal:
    return Formal(name=name, connector=name, option="variadic", min_arity=0, homogeneous=False)


def _define(op_type: str, domain: str) -> type[ONNXNode]:
    return define_operator(
        OperatorSchema(
            op_type=op_type,
            domain=domain,
            inputs=(_variadic("operands"),),
            outputs=(_variadic("results"),),
            attributes={
                "call": Attribute(name="call", kind="string", required=True),
                "draws": Attribute(name="draws", kind="int", default=0),
                "underived": Attribute(name="underived", kind="string", default=""),
            },
            doc=f"torch's {op_type}.",
        ),
        module=__name__,
        name=f"{'grad__' if domain == GRADIENTS else ''}{op_type.replace('.', '__')}",
    )


def plain_call(name: str, operands: int) -> str:
    """The call of an operator that takes so many tensors, and nothing else."""
    args = [{"tensor": n} for n in range(operands)]
    return json.dumps({"operator": name, "args": args, "kwargs": {}}, sort_keys=True)


def gradient_call(call: str, results: Sequence[int], operands: Sequence[int]) -> str:
    """The call that gives gradients of a call's operands; it takes cotangents of results as last tensors.

    Args:
        results: those that there are cotangents of.
        operands: those whose gradients are wanted.
    """
    return json.dumps({**json.loads(call), "gradient": [list(results), list(operands)]}, sort_keys=True)


for _domain in (DOMAIN, GRADIENTS):
    define_family(_domain, functools.partial(_define, domain=_domain))


def __getattr__(name: str) -> type[ONNXNode]:
    """The class of a stored node: `aten__linalg_inv_ex__default`."""
    rest = name.removeprefix("grad__")
    namespace, _, more = rest.partition("__")
    packet, _, overload = more.rpartition("__")
    if not (namespace and packet and overload):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return node_class(f"{namespace}.{packet}.{overload}", domain=DOMAIN if rest == name else GRADIENTS)

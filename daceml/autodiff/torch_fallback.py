"""Gradients of operators that torch's kernels run: by torch's own derivative, from the same operands."""

from __future__ import annotations

from collections.abc import Sequence

from dace.sdfg import nodes

from daceml.autodiff.rule_choice import advice_without_rule
from daceml.errors import GradientError
from daceml.onnx_ops.domain.torch_fallback import DOMAIN, GRADIENTS, gradient_call, plain_call
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.onnx_ops.schema.nodes import node_class


def is_torchs(step: nodes.Node) -> bool:
    """Whether a step is an operator that torch's kernels run."""
    return getattr(step, "domain", None) == DOMAIN


def refuse_without_derivative(step: ONNXNode) -> None:
    """Refuse an operator that torch cannot differentiate.

    Raises:
        GradientError: with torch's reason.
    """
    values = step.attribute_values()
    reason = (
        "it draws random numbers, and would draw others again" if values["draws"] else values["underived"]
    )
    if reason:
        raise GradientError(
            f"{step.op_type} cannot be differentiated",
            where=step.where(),
            why=reason,
            fix=advice_without_rule(step.op_type),
        )


def plain_node(name: str, operands: int) -> ONNXNode:
    """The operator of torch that takes so many tensors, and nothing else."""
    inputs = [f"operands__{n}" for n in range(operands)]
    call = plain_call(name, operands)
    return node_class(name, domain=DOMAIN)(inputs=inputs, outputs=["results__0"], call=call)


def gradient_node(step: ONNXNode, given: Sequence[int], wanted: Sequence[int]) -> ONNXNode:
    """The operator that gives gradients; its operands are those of the step, then the cotangents.

    Args:
        given: the results that there are cotangents of.
        wanted: the operands whose gradients it gives, in this order.
    """
    count = sum(name.startswith("operands__") for name in step.in_connectors) + len(given)
    call = step.attribute_values()["call"]
    return node_class(step.op_type, domain=GRADIENTS)(
        inputs=[f"operands__{n}" for n in range(count)],
        outputs=[f"results__{n}" for n in range(len(wanted))],
        onnx_name=f"{step.onnx_name}/gradient",
        module_path=step.module_path,
        source=step.source,
        call=gradient_call(call, given, wanted),
    )

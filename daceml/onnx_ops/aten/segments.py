"""Embedding bags by torch's kernel, which reads whole rows at a time."""

from __future__ import annotations

from daceml.onnx_ops.aten.views import float_operands, no_empty_operand, view
from daceml.onnx_ops.domain.segments import DOMAIN
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall
from daceml.sdfg.sizes import product


def _refusal(weight: Tensor, indices: Tensor, offsets: Tensor, result: Output) -> str | None:
    return no_empty_operand(weight, indices, offsets) or float_operands(weight, result)


@implements("EmbeddingBagSum", domain=DOMAIN, kind="aten", name="embedding_bag", when=_refusal)
def embedding_bag_sum(weight: Tensor, indices: Tensor, offsets: Tensor, result: Output) -> AtenCall:
    """`aten::_embedding_bag_forward_only`; positions are compared with the table before the call."""
    return AtenCall(
        function="embedding_bag",
        arguments=(view(weight), view(indices), view(offsets)),
        writes=result.name,
        fresh=True,
        flops=product((*indices.shape, weight.shape[1])),
    )

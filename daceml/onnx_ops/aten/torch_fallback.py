"""Operators that ONNX does not have, by torch's own kernels: called by name, through its dispatcher."""

from __future__ import annotations

from daceml.onnx_ops.aten.views import view
from daceml.onnx_ops.domain.torch_fallback import DOMAIN, GRADIENTS
from daceml.onnx_ops.registry import EVERY_OPERATOR, implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import TORCH_OPERATOR, AtenCall, FreshResult


@implements(EVERY_OPERATOR, domain=DOMAIN, kind="aten", name="dispatcher")
@implements(EVERY_OPERATOR, domain=GRADIENTS, kind="aten", name="dispatcher")
def torch_operator(
    operands: tuple[Tensor, ...],
    results: tuple[Output | None, ...],
    *,
    call: str,
    draws: int = 0,
    underived: str = "",
) -> AtenCall:
    names = [result.name for result in results if result is not None]
    return AtenCall(
        function=TORCH_OPERATOR,
        arguments=(
            call,
            *map(view, operands),
            *(None if result is None else FreshResult(array=result.name) for result in results),
        ),
        writes=names[0],
        more=tuple(names[1:]),
        draws=bool(draws),
    )

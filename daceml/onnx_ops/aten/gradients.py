"""What the calls of vendor gradients share."""

from __future__ import annotations

from collections.abc import Sequence

from daceml.onnx_ops.tracing.tensor import Output
from daceml.sdfg.external import Argument, AtenCall, FreshResult
from daceml.sdfg.sizes import Size


def handed(result: Output | None) -> FreshResult | None:
    """A result whose buffer the function hands over; None where nobody wants it."""
    return None if result is None else FreshResult(array=result.name)


def gradient_call(
    function: str,
    gradients: Sequence[Output | None],
    *arguments: Argument,
    flops: Size = 0,
    temporary_bytes: Size = 0,
) -> AtenCall:
    """A call that takes a place for each gradient, null for those that nobody wants, and the arguments."""
    wanted = [g.name for g in gradients if g is not None]
    return AtenCall(
        function=function,
        arguments=(*map(handed, gradients), *arguments),
        writes=wanted[0],
        more=tuple(wanted[1:]),
        flops=flops,
        temporary_bytes=temporary_bytes,
    )

"""Recurrent operators with torch's products of matrices, one for the input of all steps, one for each step.

Every option that torch's own layers have; loops of our own take the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dace

from daceml.onnx_ops.aten.views import GRADIENTS, float_operands, no_empty_operand, view
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.sdfg.external import AtenCall
from daceml.sdfg.sizes import Size, product

# As `aten_recurrent.h` numbers them, and their activations for one direction
_KINDS: dict[str, dict[tuple[str, ...], int]] = {
    "RNN": {("tanh",): 0, ("relu",): 1},
    "GRU": {("sigmoid", "tanh"): 2},
    "LSTM": {("sigmoid", "tanh", "tanh"): 3},
}
_REVERSE = {"forward": 0, "bidirectional": 0, "reverse": 1}


def _kind(op_type: str, activations: Sequence[str] | None, direction: str) -> int | None:
    known = _KINDS[op_type]
    if activations is None:
        return next(iter(known.values()))
    ways, needed = (2 if direction == "bidirectional" else 1), len(next(iter(known)))
    each = len(activations) // ways
    # names behind those that a direction needs are ONNX's own defaults, for another one
    found = {tuple(n.lower() for n in activations[d * each :][:needed]) for d in range(ways)}
    return known.get(found.pop()) if len(found) == 1 else None


def _refusal(
    op_type: str,
    X: Tensor,
    W: Tensor,
    R: Tensor,
    sequence_lens: Tensor | None,
    *,
    activations: Sequence[str] | None,
    clip: float | None,
    direction: str,
    layout: int,
) -> str | None:
    if sequence_lens is not None:
        return "sequences have lengths of their own"
    if layout:
        return "the batch comes before the steps"
    if clip is not None:
        return "gates are clipped"
    if direction not in _REVERSE or _kind(op_type, activations, direction) is None:
        return f"its activations are {', '.join(activations or ())}, its direction {direction}"
    if X.dtype not in (dace.float32, dace.float64):
        return "states of a half type are kept in float32"
    return no_empty_operand(X, W, R) or float_operands(X, W, R)


def _rnn_refusal(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    sequence_lens: Tensor | None,
    activations: Sequence[str] | None,
    clip: float | None,
    direction: str,
    layout: int,
) -> str | None:
    return _refusal(
        "RNN", X, W, R, sequence_lens, activations=activations, clip=clip, direction=direction, layout=layout
    )


def _gru_refusal(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    sequence_lens: Tensor | None,
    activations: Sequence[str] | None,
    clip: float | None,
    direction: str,
    layout: int,
    linear_before_reset: int,
) -> str | None:
    if not linear_before_reset:
        return "the reset gate stands before the product"
    return _refusal(
        "GRU", X, W, R, sequence_lens, activations=activations, clip=clip, direction=direction, layout=layout
    )


def _lstm_refusal(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    sequence_lens: Tensor | None,
    P: Tensor | None,
    activations: Sequence[str] | None,
    clip: float | None,
    direction: str,
    layout: int,
    input_forget: int,
) -> str | None:
    if P is not None or input_forget:
        return "its gates look at the cell, or two are coupled"
    return _refusal(
        "LSTM", X, W, R, sequence_lens, activations=activations, clip=clip, direction=direction, layout=layout
    )


def _views(tensors: Sequence[Tensor | Output | None]) -> list[Any]:
    return [None if t is None else view(t) for t in tensors]


def _call(
    function: str,
    op_type: str,
    results: Sequence[Output | None],
    operands: Sequence[Tensor | None],
    X: Tensor,
    R: Tensor,
    activations: Sequence[str] | None,
    direction: str,
    passes: int,
) -> AtenCall:
    written = [r.name for r in results if r is not None]
    kind = _kind(op_type, activations, direction)
    assert kind is not None, "refused before"
    return AtenCall(
        function=function,
        arguments=(*_views(results), *_views(operands), kind, _REVERSE[direction]),
        writes=written[0],
        more=tuple(written[1:]),
        flops=passes * layer_flops(X, R),
    )


def layer_flops(X: Tensor, R: Tensor) -> Size:
    """Floating-point operations of the products of a forward pass, of all steps and directions."""
    return 2 * product(X.shape[:2]) * product(R.shape[:2]) * (R.shape[2] + X.shape[2])


def _forward(op_type: str, when: Any) -> Any:
    def call(
        X: Tensor,
        W: Tensor,
        R: Tensor,
        B: Tensor | None,
        initial_h: Tensor | None,
        initial_c: Tensor | None,
        Y: Output | None,
        Y_h: Output | None,
        Y_c: Output | None,
        State: Output | None,
        *,
        activations: Sequence[str] | None = None,
        direction: str = "forward",
        hidden_size: int | None = None,
        input_forget: int = 0,
        layout: int = 0,
        linear_before_reset: int = 0,
    ) -> AtenCall:
        results, operands = (Y, Y_h, Y_c, State), (X, W, R, B, initial_h, initial_c)
        return _call("recurrent_layer", op_type, results, operands, X, R, activations, direction, 1)

    implements(op_type, kind="aten", name="products", when=when, devices=("cpu",))(call)
    implements(
        f"{op_type}Saving", domain="daceml", kind="aten", name="products", when=when, devices=("cpu",)
    )(call)


def _backward(op_type: str, when: Any) -> Any:
    def call(
        X: Tensor,
        W: Tensor,
        R: Tensor,
        State: Tensor,
        dY: Tensor | None,
        dY_h: Tensor | None,
        dY_c: Tensor | None,
        dX: Output | None,
        dW: Output | None,
        dR: Output | None,
        dB: Output | None,
        dinitial_h: Output | None,
        dinitial_c: Output | None,
        *,
        activations: Sequence[str] | None = None,
        direction: str = "forward",
        input_forget: int = 0,
        layout: int = 0,
        linear_before_reset: int = 0,
    ) -> AtenCall:
        results, operands = (dX, dW, dR, dB, dinitial_h, dinitial_c), (State, X, W, R, dY, dY_h, dY_c)
        return _call("recurrent_layer_backward", op_type, results, operands, X, R, activations, direction, 2)

    name = "products_backward"
    implements(f"{op_type}SavingGrad", domain=GRADIENTS, kind="aten", name=name, when=when, devices=("cpu",))(
        call
    )


for _op_type, _when in (("RNN", _rnn_refusal), ("GRU", _gru_refusal), ("LSTM", _lstm_refusal)):
    _forward(_op_type, _when)
    _backward(_op_type, _when)

"""RNN, GRU and LSTM: back-propagation through time from the states that the forward pass kept.

The lowered form is a loop over steps, of which no derivative is read off: the rules hold by definition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from daceml.autodiff.rules.recurrent_steps import Reverse, slope
from daceml.autodiff.vjp import vjp
from daceml.onnx_ops.domain.saving import STATE_PARTS
from daceml.onnx_ops.native.recurrent import directions_of
from daceml.onnx_ops.native.recurrent_layer import Activation, Layer, activations_of
from daceml.onnx_ops.tracing.tensor import Output, Tensor
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, compute_type
from daceml.sdfg.scatter import Loop


@dataclass(frozen=True, kw_only=True)
class _Way:
    """How the gradients of one direction come about.

    Attributes:
        loops: of a step, in order.
        inputs, states: the part that the gates' cotangents begin with, as the input's weights and as the
            state's see them.
        sources: (first gate, last, part of the state that its rows were taken of, whether the step made it).
    """

    loops: list[Loop]
    inputs: int
    states: int
    sources: tuple[tuple[int, int, int, int], ...]


Cell = Callable[[Reverse, int, Sequence[Activation]], _Way]


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """Where gradients go to, None where nobody wants one; `starts` are those of the initial states."""

    x: Output | None
    w: Output | None
    r: Output | None
    b: Output | None
    starts: tuple[Output | None, ...]


def _states(op_type: str) -> Callable[..., tuple[tuple[Index, ...], Any]]:
    def extra(X: Tensor, R: Tensor, layout: int) -> tuple[tuple[Index, ...], Any]:
        batch, steps = X.shape[:2] if layout else (X.shape[1], X.shape[0])
        size: Any = STATE_PARTS[op_type] * R.shape[2]
        return (R.shape[0], steps + 1, batch, size), compute_type(X.dtype)

    return extra


def _backwards(
    operands: tuple[Tensor, Tensor, Tensor, Tensor | None],
    state: Tensor,
    cotangents: Sequence[Tensor | None],
    wanted: _Wanted,
    cell: Cell,
    functions: Sequence[Activation],
    *,
    gates: int,
    parts: int,
    direction: str,
    layout: int,
) -> None:
    """Every direction; `cotangents` are those of Y, Y_h and Y_c, `parts` what is kept of a backward step."""
    X, W, R, lengths = operands
    directions, hidden = directions_of(direction), R.shape[2]
    if not isinstance(hidden, int):
        raise Refused("the number of hidden units is symbolic")
    x = X.transpose(1, 0, 2) if layout else X
    of_steps, *of_last = cotangents
    if of_steps is not None and layout:
        of_steps = of_steps.transpose(1, 2, 0, 3)
    each, rows = len(functions) // len(directions), gates * hidden
    shares: list[Tensor] = []
    for d, backward in enumerate(directions):
        layer = Layer(
            x=x,
            w=W[d],
            r=R[d],
            bias=None,
            lengths=lengths,
            backward=backward,
            hidden=hidden,
            gates=gates,
            parts=parts,
            states=state,
            direction=d,
        )
        back = Reverse(layer, parts, of_steps)
        way = cell(back, d, functions[d * each : (d + 1) * each])
        back.run([g if g is None else g[:, d] if layout else g[d] for g in of_last], way.loops)
        for part, start in enumerate(wanted.starts):
            if start is not None:
                target = start.permuted(1, 0, 2) if layout else start
                target[d : d + 1] = back.first(part).expand_dims(0)
        if wanted.x is not None:
            shares.append(back.inputs(way.inputs, rows))
        if wanted.w is not None:
            wanted.w[d : d + 1] = back.input_weights(way.inputs, rows).expand_dims(0)
        if wanted.r is not None:
            for first, last, source, after in way.sources:
                value = back.state_weights(way.states + first, (last - first) * hidden, source, after)
                wanted.r[d : d + 1, first * hidden : last * hidden] = value.expand_dims(0)
        if wanted.b is not None:
            for n, part in enumerate((way.inputs, way.states)):
                wanted.b[d : d + 1, n * rows : (n + 1) * rows] = back.total(part, rows).expand_dims(0)
    if wanted.x is not None:
        target = wanted.x.permuted(1, 0, 2) if layout else wanted.x
        target[:] = shares[0] if len(shares) == 1 else shares[0].materialize() + shares[1].materialize()


@vjp("RNNSaving", domain="daceml", extra={"State": _states("RNN")}, by_definition=True)
def rnn_vjp(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    sequence_lens: Tensor | None,
    State: Tensor,
    dY: Tensor | None,
    dY_h: Tensor | None,
    dX: Output | None,
    dW: Output | None,
    dR: Output | None,
    dB: Output | None,
    dinitial_h: Output | None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    layout: int = 0,
) -> None:
    """What is kept of a step: the cotangents of h and of what the function was taken of."""

    def cell(back: Reverse, d: int, functions: Sequence[Activation]) -> _Way:
        loops = [
            back.write(1, slope(functions[0], back.kept(1), back.hidden_cotangent())),
            back.carry(0, back.through(1, back.hidden)),
        ]
        return _Way(loops=loops, inputs=1, states=1, sources=((0, 1, 0, 0),))

    count = len(directions_of(direction))
    _backwards(
        (X, W, R, sequence_lens),
        State,
        (dY, dY_h),
        _Wanted(x=dX, w=dW, r=dR, b=dB, starts=(dinitial_h,)),
        cell,
        activations_of(activations, activation_alpha, activation_beta, clip, ["Tanh"] * count),
        gates=1,
        parts=2,
        direction=direction,
        layout=layout,
    )


def _reset_behind(back: Reverse, functions: Sequence[Activation]) -> _Way:
    """n = f(x' + r q), q = R h + b: kept are h, z, r, q, and for the input's weights z, r, n."""
    gate, new = functions
    z, r, n, q = (back.kept(part) for part in (1, 2, 3, 4))
    given, size = back.hidden_cotangent(), back.hidden
    loops = [
        back.write(6, slope(new, n, given * (1 - gate(z)))),
        back.write(1, slope(gate, z, given * (back.kept_before(0) - new(n)))),
        back.write(2, slope(gate, r, back.made(6) * q)),
        back.write(3, back.made(6) * gate(r)),
        back.write(4, back.made(1), 2 * size),
        back.carry(0, given * gate(z) + back.through(1, 3 * size)),
    ]
    return _Way(loops=loops, inputs=4, states=1, sources=((0, 3, 0, 0),))


def _reset_before(back: Reverse, functions: Sequence[Activation]) -> _Way:
    """n = f(x' + R (r h)): kept are h, z, r, n and r h."""
    gate, new = functions
    z, r, n, before = back.kept(1), back.kept(2), back.kept(3), back.kept_before(0)
    given, size = back.hidden_cotangent(), back.hidden
    loops = [
        back.write(3, slope(new, n, given * (1 - gate(z)))),
        back.write(1, slope(gate, z, given * (before - new(n)))),
        back.write(4, back.through(3, size, 2 * size)),
        back.write(2, slope(gate, r, back.made(4) * before)),
        back.carry(0, given * gate(z) + back.made(4) * gate(r) + back.through(1, 2 * size)),
    ]
    return _Way(loops=loops, inputs=1, states=1, sources=((0, 2, 0, 0), (2, 3, 4, 1)))


@vjp("GRUSaving", domain="daceml", extra={"State": _states("GRU")}, by_definition=True)
def gru_vjp(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    sequence_lens: Tensor | None,
    State: Tensor,
    dY: Tensor | None,
    dY_h: Tensor | None,
    dX: Output | None,
    dW: Output | None,
    dR: Output | None,
    dB: Output | None,
    dinitial_h: Output | None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    layout: int = 0,
    linear_before_reset: int = 0,
) -> None:
    """dn = (1 - z) dh f'(n), dz = (h' - n) dh f'(z); the reset gate stands behind a product or before it."""

    def cell(back: Reverse, d: int, functions: Sequence[Activation]) -> _Way:
        return (_reset_behind if linear_before_reset else _reset_before)(back, functions)

    defaults = ["Sigmoid", "Tanh"] * len(directions_of(direction))
    _backwards(
        (X, W, R, sequence_lens),
        State,
        (dY, dY_h),
        _Wanted(x=dX, w=dW, r=dR, b=dB, starts=(dinitial_h,)),
        cell,
        activations_of(activations, activation_alpha, activation_beta, clip, defaults),
        gates=3,
        parts=7 if linear_before_reset else 5,
        direction=direction,
        layout=layout,
    )


@vjp("LSTMSaving", domain="daceml", extra={"State": _states("LSTM")}, by_definition=True)
def lstm_vjp(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    sequence_lens: Tensor | None,
    P: Tensor | None,
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
    dP: Output | None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    input_forget: int = 0,
    layout: int = 0,
) -> None:
    """Kept of a step: the cotangents of h, of c before it, of the gates i, o, f, c, and of c behind."""

    def cell(back: Reverse, d: int, functions: Sequence[Activation]) -> _Way:
        gate, new, out = functions
        size, unit = back.hidden, back.unit
        c, old, given = back.kept(1), back.kept_before(1), back.hidden_cotangent()

        def peephole(row: int, value: Scalar) -> Scalar | None:
            return None if P is None else P[(d, row * size + unit)] * value

        def plus(value: Scalar, *more: Scalar | None) -> Scalar:
            for term in more:
                value = value if term is None else value + term
            return value

        i, o = plus(back.kept(2), peephole(0, old)), plus(back.kept(3), peephole(1, c))
        f, g = plus(back.kept(4), peephole(2, old)), back.kept(5)
        of_cell = back.made(6)
        if input_forget:
            kept, entered, of_f = 1 - gate(i), of_cell * (new(g) - old), of_cell * 0
        else:
            kept, entered = gate(f), of_cell * new(g)
            of_f = slope(gate, f, of_cell * old)
        through_out = slope(out, c, given * gate(o))
        before = plus(of_cell * kept, peephole(0, back.made(2)), peephole(2, back.made(4)))
        loops = [
            back.write(3, slope(gate, o, given * out(c))),
            back.write(6, plus(back.flowing(1) + through_out, peephole(1, back.made(3)))),
            back.write(2, slope(gate, i, entered)),
            back.write(4, of_f),
            back.write(5, slope(new, g, of_cell * gate(i))),
            back.carry(1, before),
            back.carry(0, back.through(2, 4 * size)),
        ]
        reverses.append(back)
        return _Way(loops=loops, inputs=2, states=2, sources=((0, 4, 0, 0),))

    reverses: list[Reverse] = []
    defaults = ["Sigmoid", "Tanh", "Tanh"] * len(directions_of(direction))
    _backwards(
        (X, W, R, sequence_lens),
        State,
        (dY, dY_h, dY_c),
        _Wanted(x=dX, w=dW, r=dR, b=dB, starts=(dinitial_h, dinitial_c)),
        cell,
        activations_of(activations, activation_alpha, activation_beta, clip, defaults),
        gates=4,
        parts=7,
        direction=direction,
        layout=layout,
    )
    if dP is not None:
        for d, back in enumerate(reverses):
            for row in range(3):
                # the gates i, o and f look at the cell: o at the new one
                total = back.total(2 + row, back.hidden, 1, int(row == 1))
                dP[d : d + 1, row * back.hidden : (row + 1) * back.hidden] = total.expand_dims(0)

"""RNN, GRU and LSTM: the input's share of all steps in one product, then a recurrence over the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from daceml.onnx_ops.functions import where
from daceml.onnx_ops.indexing import same
from daceml.onnx_ops.native.gather import check_positions
from daceml.onnx_ops.native.recurrent_layer import Activation, Layer, activations_of
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tensor import Output, Tensor, is_float
from daceml.onnx_ops.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, index_value, literal

Cell = Callable[[Layer, int, Sequence[Activation]], None]


def _run(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    B: Tensor | None,
    sequence_lens: Tensor | None,
    results: tuple[Output | None, ...],
    cell: Cell,
    functions: list[Activation],
    *,
    direction: str,
    layout: int,
    gates: int,
    parts: int,
    finals: Sequence[int],
) -> None:
    """Every direction; `results` are Y and the last values of the parts named in `finals`."""
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(direction)
    if directions is None:
        raise Refused(f"there is no direction {direction!r}")
    hidden = R.shape[2]
    if not isinstance(hidden, int):
        raise Refused("the number of hidden units is symbolic")
    if not is_float(X):
        raise Refused(f"steps of {X.dtype.to_string()}")
    x = X.transpose(1, 0, 2) if layout else X
    if same(x.shape[0], 0):
        raise Refused("a sequence without steps")
    if sequence_lens is not None:
        check_positions(sequence_lens, x.shape[0] + 1, lowest=0)
    each = len(functions) // len(directions)
    for d, backward in enumerate(directions):
        layer = Layer(
            x=x,
            w=W[d],
            r=R[d],
            bias=None if B is None else B[d],
            lengths=sequence_lens,
            backward=backward,
            hidden=hidden,
            gates=gates,
            parts=parts,
        )
        cell(layer, d, functions[d * each : (d + 1) * each])
        y, *last = results
        if y is not None:
            # [steps, directions, batch, hidden], or [batch, steps, directions, hidden]
            target = y.permuted(1, 2, 0, 3) if layout else y
            target[:, d : d + 1] = layer.all_steps().expand_dims(1)
        for final, part in zip(last, finals, strict=True):
            if final is not None:
                target = final.permuted(1, 0, 2) if layout else final
                target[d : d + 1] = layer.last(part).expand_dims(0)


def _first(initial: Tensor | None, d: int, layout: int) -> Tensor | None:
    if initial is None:
        return None
    return initial[:, d] if layout else initial[d]


@implements("RNN")
def rnn(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    B: Tensor | None,
    sequence_lens: Tensor | None,
    initial_h: Tensor | None,
    Y: Output | None,
    Y_h: Output | None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> None:
    """h = f(W x + R h + b)."""
    count = 2 if direction == "bidirectional" else 1
    functions = activations_of(activations, activation_alpha, activation_beta, clip, ["Tanh"] * count)

    def cell(layer: Layer, d: int, functions: Sequence[Activation]) -> None:
        given = layer.projected(layer.both_biases)
        total = given[(layer.step, layer.lane, layer.unit)] + layer.through(
            layer.unit, lambda k: layer.before(0, k)
        )
        layer.run([_first(initial_h, d, layout)], [layer.write(0, layer.carried(functions[0](total), 0))])

    _run(
        X,
        W,
        R,
        B,
        sequence_lens,
        (Y, Y_h),
        cell,
        functions,
        direction=direction,
        layout=layout,
        gates=1,
        parts=1,
        finals=(0,),
    )


@implements("GRU")
def gru(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    B: Tensor | None,
    sequence_lens: Tensor | None,
    initial_h: Tensor | None,
    Y: Output | None,
    Y_h: Output | None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> None:
    """Gates z, r, h; the state holds h, then z, r and what h takes from the state."""
    count = 2 if direction == "bidirectional" else 1
    functions = activations_of(
        activations, activation_alpha, activation_beta, clip, ["Sigmoid", "Tanh"] * count
    )

    def cell(layer: Layer, d: int, functions: Sequence[Activation]) -> None:
        size, lane, step, unit = layer.hidden, layer.lane, layer.step, layer.unit
        gate, new = functions

        def input_bias(row: Index) -> Scalar | None:
            if layer.bias is None or not linear_before_reset:
                return layer.both_biases(row)
            # behind the reset gate stands the bias of the state, too
            own, other = layer.bias[(row,)], layer.bias[(row + 3 * size,)]
            return own + where(index_value(row) < 2 * size, other, literal(0, own.dtype))

        given = layer.projected(input_bias)
        both = given[(step, lane, unit)] + layer.through(unit, lambda k: layer.before(0, k))
        loops = [layer.write(1, gate(both), 2 * size)]
        if linear_before_reset:
            shared = layer.through(2 * size + unit, lambda k: layer.before(0, k))
            shared = shared if layer.bias is None else shared + layer.bias[(5 * size + unit,)]
            shared = layer.now(2) * shared
        else:
            shared = layer.through(2 * size + unit, lambda k: layer.now(2, k) * layer.before(0, k))
        loops.append(layer.write(3, new(given[(step, lane, 2 * size + unit)] + shared)))
        mixed = (1 - layer.now(1)) * layer.now(3) + layer.now(1) * layer.before(0)
        loops.append(layer.write(0, layer.carried(mixed, 0)))
        layer.run([_first(initial_h, d, layout)], loops)

    _run(
        X,
        W,
        R,
        B,
        sequence_lens,
        (Y, Y_h),
        cell,
        functions,
        direction=direction,
        layout=layout,
        gates=3,
        parts=4,
        finals=(0,),
    )


@implements("LSTM")
def lstm(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    B: Tensor | None,
    sequence_lens: Tensor | None,
    initial_h: Tensor | None,
    initial_c: Tensor | None,
    P: Tensor | None,
    Y: Output | None,
    Y_h: Output | None,
    Y_c: Output | None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> None:
    """Gates i, o, f, c; the state holds h and c, then the gates before their functions."""
    count = 2 if direction == "bidirectional" else 1
    defaults = ["Sigmoid", "Tanh", "Tanh"] * count
    functions = activations_of(activations, activation_alpha, activation_beta, clip, defaults)

    def cell(layer: Layer, d: int, functions: Sequence[Activation]) -> None:
        size, lane, step, unit = layer.hidden, layer.lane, layer.step, layer.unit
        gate, new, out = functions

        def seen(part: int, c: Scalar, row: int) -> Scalar:
            """A gate that also looks at the cell."""
            value = layer.now(part)
            return value if P is None else value + P[(d, row * size + unit)] * c

        given = layer.projected(layer.both_biases)
        rows = given[(step, lane, unit)] + layer.through(unit, lambda k: layer.before(0, k))
        old = layer.before(1)
        entered = gate(seen(2, old, 0))
        kept = 1 - entered if input_forget else gate(seen(4, old, 2))
        cell_now = kept * old + entered * new(layer.now(5))
        hidden_now = gate(seen(3, layer.now(1), 1)) * out(layer.now(1))
        layer.run(
            [_first(initial_h, d, layout), _first(initial_c, d, layout)],
            [
                layer.write(2, rows, 4 * size),
                layer.write(1, layer.carried(cell_now, 1)),
                layer.write(0, layer.carried(hidden_now, 0)),
            ],
        )

    _run(
        X,
        W,
        R,
        B,
        sequence_lens,
        (Y, Y_h, Y_c),
        cell,
        functions,
        direction=direction,
        layout=layout,
        gates=4,
        parts=6,
        finals=(0, 1),
    )

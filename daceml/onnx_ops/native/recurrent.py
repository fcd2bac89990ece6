"""RNN, GRU and LSTM: the input's share of all steps in one product, then a recurrence over the steps.

The states are what gradients are made of: see `daceml.onnx_ops.domain.saving`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from daceml.onnx_ops.domain.saving import STATE_PARTS
from daceml.onnx_ops.native.gather import check_positions
from daceml.onnx_ops.native.recurrent_layer import Activation, Layer, activations_of
from daceml.onnx_ops.registry import implements
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.indexing import same
from daceml.onnx_ops.tracing.tensor import Output, Tensor, is_float
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.scalar import Index, Scalar, compute_type, index_value, literal

Cell = Callable[[Layer, int, Sequence[Activation]], None]


def _run(
    op_type: str,
    X: Tensor,
    W: Tensor,
    R: Tensor,
    B: Tensor | None,
    sequence_lens: Tensor | None,
    results: tuple[Output | None, ...],
    state: Output | None,
    cell: Cell,
    functions: list[Activation],
    *,
    direction: str,
    layout: int,
    gates: int,
) -> None:
    """Every direction; `results` are Y and the last values of the first parts of the state."""
    directions = directions_of(direction)
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
    parts, dtype = STATE_PARTS[op_type], compute_type(X.dtype)
    if state is None:
        shape = (len(directions), x.shape[0] + 1, x.shape[1], parts * hidden)
        state = Output(shape, dtype, X.trace.intermediate("state", shape, dtype).name, X.trace)
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
            states=state,
            direction=d,
        )
        cell(layer, d, functions[d * each : (d + 1) * each])
        y, *last = results
        if y is not None:
            # [steps, directions, batch, hidden], or [batch, steps, directions, hidden]
            target = y.permuted(1, 2, 0, 3) if layout else y
            target[:, d : d + 1] = layer.all_steps().expand_dims(1)
        for part, final in enumerate(last):
            if final is not None:
                target = final.permuted(1, 0, 2) if layout else final
                target[d : d + 1] = layer.last(part).expand_dims(0)


def directions_of(direction: str) -> tuple[bool, ...]:
    """For each direction of a node, whether it goes from the last step to the first."""
    known = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if direction not in known:
        raise Refused(f"there is no direction {direction!r}")
    return known[direction]


def first_state(initial: Tensor | None, d: int, layout: int) -> Tensor | None:
    """What a direction starts from: [batch, hidden]."""
    if initial is None:
        return None
    return initial[:, d] if layout else initial[d]


@implements("RNN")
@implements("RNNSaving", domain="daceml")
def rnn(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    B: Tensor | None,
    sequence_lens: Tensor | None,
    initial_h: Tensor | None,
    Y: Output | None,
    Y_h: Output | None,
    State: Output | None,
    *,
    activations: Sequence[str] | None = None,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> None:
    """h = f(W x + R h + b); the state holds h, then what f is taken of."""
    count = 2 if direction == "bidirectional" else 1
    functions = activations_of(activations, activation_alpha, activation_beta, clip, ["Tanh"] * count)

    def cell(layer: Layer, d: int, functions: Sequence[Activation]) -> None:
        given = layer.projected(layer.both_biases)
        total = given[(layer.step, layer.lane, layer.unit)] + layer.through(
            layer.unit, lambda k: layer.before(0, k)
        )
        hidden = layer.carried(functions[0](layer.now(1)), 0)
        layer.run([first_state(initial_h, d, layout)], [layer.write(1, total), layer.write(0, hidden)])

    _run(
        "RNN",
        X,
        W,
        R,
        B,
        sequence_lens,
        (Y, Y_h),
        State,
        cell,
        functions,
        direction=direction,
        layout=layout,
        gates=1,
    )


@implements("GRU")
@implements("GRUSaving", domain="daceml")
def gru(
    X: Tensor,
    W: Tensor,
    R: Tensor,
    B: Tensor | None,
    sequence_lens: Tensor | None,
    initial_h: Tensor | None,
    Y: Output | None,
    Y_h: Output | None,
    State: Output | None,
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
    """Gates z, r, n; the state holds h, then z, r and n before their functions, then what n is given of h:
    R h + b with `linear_before_reset`, which r is then a factor of, else r h.
    """
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
        loops = [layer.write(1, both, 2 * size)]
        own = given[(step, lane, 2 * size + unit)]
        if linear_before_reset:
            shared = layer.through(2 * size + unit, lambda k: layer.before(0, k))
            shared = shared if layer.bias is None else shared + layer.bias[(5 * size + unit,)]
            loops += [layer.write(4, shared), layer.write(3, own + gate(layer.now(2)) * layer.now(4))]
        else:
            loops.append(layer.write(4, gate(layer.now(2)) * layer.before(0)))
            loops.append(layer.write(3, own + layer.through(2 * size + unit, lambda k: layer.now(4, k))))
        update = gate(layer.now(1))
        mixed = (1 - update) * new(layer.now(3)) + update * layer.before(0)
        loops.append(layer.write(0, layer.carried(mixed, 0)))
        layer.run([first_state(initial_h, d, layout)], loops)

    _run(
        "GRU",
        X,
        W,
        R,
        B,
        sequence_lens,
        (Y, Y_h),
        State,
        cell,
        functions,
        direction=direction,
        layout=layout,
        gates=3,
    )


@implements("LSTM")
@implements("LSTMSaving", domain="daceml")
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
    State: Output | None,
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
            [first_state(initial_h, d, layout), first_state(initial_c, d, layout)],
            [
                layer.write(2, rows, 4 * size),
                layer.write(1, layer.carried(cell_now, 1)),
                layer.write(0, layer.carried(hidden_now, 0)),
            ],
        )

    _run(
        "LSTM",
        X,
        W,
        R,
        B,
        sequence_lens,
        (Y, Y_h, Y_c),
        State,
        cell,
        functions,
        direction=direction,
        layout=layout,
        gates=4,
    )

"""Recurrent layers: one ONNX node for each layer and both its directions, gates in ONNX's order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from daceml.frontend.onnx_export.translations import UnsupportedError, translates
from daceml.frontend.onnx_export.translations.emit import Size, Value, op, sizes_of, typed
from daceml.frontend.onnx_export.translations.random import native_dropout

# For each of ONNX's gates torch's, as runs of neighbours [first, last)
_ORDER: dict[str, list[tuple[int, int]]] = {
    "RNN": [(0, 1)],
    "GRU": [(1, 2), (0, 1), (2, 3)],  # r, z, n -> z, r, n
    "LSTM": [(0, 1), (3, 4), (1, 3)],  # i, f, g, o -> i, o, f, g
}


def _rows(value: Value, first: int, last: int) -> Value:
    """Part of the first dimension."""
    return typed(op.Slice(value, [first], [last], [0]), value, shape=(last - first, *sizes_of(value)[1:]))


def _joined(values: Sequence[Value], axis: int = 0) -> Value:
    """One after the other; lengths along the axis are static."""
    if len(values) == 1:
        return values[0]
    shape = list(sizes_of(values[0]))
    shape[axis] = sum(int(sizes_of(v)[axis]) for v in values)  # pyright: ignore[reportArgumentType]
    return typed(op.Concat(*values, axis=axis), values[0], shape=shape)


def _in_order(kind: str, weight: Value, hidden: int) -> Value:
    runs = _ORDER[kind]
    if len(runs) == 1:
        return weight
    return _joined([_rows(weight, first * hidden, last * hidden) for first, last in runs])


def _stacked(values: Sequence[Value]) -> Value:
    """Directions as a new first dimension."""
    return _joined([typed(op.Unsqueeze(v, [0]), v, shape=(1, *sizes_of(v))) for v in values])


def _run(
    kind: str,
    input: Value,
    states: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    **attributes: Any,
) -> tuple[Value, ...]:
    """The last layer's output, and the last states of every layer and direction."""
    directions, each = 1 + bidirectional, 4 if has_biases else 2
    if len(params) != num_layers * directions * each:
        raise UnsupportedError(
            "an LSTM with proj_size: ONNX's has no projection of its hidden state; leave proj_size out, and "
            "project the output with nn.Linear"
        )
    hidden = sizes_of(params[1])[1]
    if not isinstance(hidden, int):
        raise UnsupportedError("a recurrent layer with a symbolic number of hidden units")
    x = input
    if batch_first:
        batch, steps, width = sizes_of(input)
        x = typed(op.Transpose(input, perm=[1, 0, 2]), input, shape=(steps, batch, width))
    steps, batch, _ = sizes_of(x)
    ends: list[list[Value]] = [[] for _ in states]
    for layer in range(num_layers):
        if layer and train and dropout > 0:
            x = typed(native_dropout(x, dropout, True)[0], x)
        own = [params[(layer * directions + d) * each :][:each] for d in range(directions)]
        start = layer * directions
        first = states
        if num_layers > 1:
            first = [_rows(state, start, start + directions) for state in states]
        y, *last = op_of(kind)(
            x,
            _stacked([_in_order(kind, p[0], hidden) for p in own]),
            _stacked([_in_order(kind, p[1], hidden) for p in own]),
            _stacked([_joined([_in_order(kind, b, hidden) for b in p[2:]]) for p in own])
            if has_biases
            else None,
            None,
            *first,
            hidden_size=hidden,
            direction="bidirectional" if bidirectional else "forward",
            **attributes,
        )
        typed(y, x, shape=(steps, directions, batch, hidden))
        for found, values in zip(last, ends, strict=True):
            values.append(typed(found, x, shape=(directions, batch, hidden)))
        x = _beside_each_other(y, (steps, batch, directions * hidden))
    if batch_first:
        x = op.Transpose(x, perm=[1, 0, 2])
    return x, *(_joined(values) for values in ends)


def op_of(kind: str) -> Any:
    """ONNX's operator."""
    return {"RNN": op.RNN, "GRU": op.GRU, "LSTM": op.LSTM}[kind]


def _beside_each_other(y: Value, shape: tuple[Size, Size, int]) -> Value:
    """[steps, directions, batch, hidden] -> [steps, batch, directions * hidden]."""
    steps, directions, batch, hidden = sizes_of(y)
    if directions == 1:
        return typed(op.Squeeze(y, [1]), y, shape=shape)
    swapped = typed(op.Transpose(y, perm=[0, 2, 1, 3]), y, shape=(steps, batch, directions, hidden))
    return typed(op.Reshape(swapped, [0, 0, shape[2]]), y, shape=shape)


@translates("aten.lstm.input")
def lstm(
    input: Value,
    hx: Sequence[Value],
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Value, ...]:
    return _run("LSTM", input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)


@translates("aten.gru.input")
def gru(
    input: Value,
    hx: Value,
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Value, ...]:
    """torch applies the reset gate behind the product."""
    return _run(
        "GRU",
        input,
        [hx],
        params,
        has_biases,
        num_layers,
        dropout,
        train,
        bidirectional,
        batch_first,
        linear_before_reset=1,
    )


def _plain(activation: str, input: Value, hx: Value, *rest: Any) -> tuple[Value, ...]:
    directions = 1 + bool(rest[5])
    return _run("RNN", input, [hx], *rest, activations=[activation] * directions)


@translates("aten.rnn_tanh.input")
def rnn_tanh(
    input: Value,
    hx: Value,
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Value, ...]:
    return _plain(
        "Tanh", input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
    )


@translates("aten.rnn_relu.input")
def rnn_relu(
    input: Value,
    hx: Value,
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Value, ...]:
    return _plain(
        "Relu", input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first
    )


@translates("aten.lstm.data", "aten.gru.data", "aten.rnn_tanh.data", "aten.rnn_relu.data")
def packed(*args: Any, **kwargs: Any) -> Value:
    raise UnsupportedError(
        "a packed sequence, whose sizes depend on data; give the recurrent layer padded sequences"
    )

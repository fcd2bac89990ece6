"""Recurrent layers in a trace: results of the right shape, in place of torch's formula step by step.

torch.export keeps such a layer as one node, but runs its formula on fake tensors to learn what it returns:
a loop over the steps, which takes seconds, and makes their number a constant.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._C import DispatchKey

_KEYS = (DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd)
Tensors = Sequence[torch.Tensor]


@contextmanager
def recurrent_layers_by_shape() -> Generator[None]:
    """Within the block, traces learn shapes alone; for the thread that traces (`trace_lock.py`)."""
    aten = torch.ops.aten
    operators: Sequence[Any] = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
    before = [(operator, dict(operator.py_kernels)) for operator in operators]
    try:
        for operator in operators:
            found = _with_cell if operator is aten.lstm.input else _without_cell
            for key in _KEYS:
                operator.py_kernels[key] = found
            operator._dispatch_cache.clear()  # pyright: ignore[reportPrivateUsage]
        yield
    finally:
        for operator, kernels in before:
            operator.py_kernels.clear()
            operator.py_kernels.update(kernels)
            operator._dispatch_cache.clear()  # pyright: ignore[reportPrivateUsage]


def _with_cell(
    input: torch.Tensor, hx: Tensors, params: Tensors, has_biases: bool, num_layers: int, *rest: Any
) -> tuple[torch.Tensor, ...]:
    return _results(input, hx, params, num_layers, *rest)


def _without_cell(
    input: torch.Tensor, hx: torch.Tensor, params: Tensors, has_biases: bool, num_layers: int, *rest: Any
) -> tuple[torch.Tensor, ...]:
    return _results(input, [hx], params, num_layers, *rest)


def _results(
    input: torch.Tensor,
    states: Tensors,
    params: Tensors,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, ...]:
    """Sequence and last states, as torch strides them; they depend on every operand."""
    directions = 1 + bidirectional
    batch, steps = (input.shape[0], input.shape[1]) if batch_first else (input.shape[1], input.shape[0])
    if not steps > 0:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    _fits("input", input, input.shape[2] == params[0].shape[1], "its features are others")
    for state in states:
        _fits("state", state, state.shape[1] == batch, "its batch is another one")
        _fits("state", state, state.shape[0] == num_layers * directions, "layers are missing")
    anchor = sum((tensor.sum() for tensor in (*states, *params)), start=input.sum())
    sequence = input.new_empty((steps, batch, directions * states[0].shape[2])) + anchor
    last = [state.new_empty(state.shape) + anchor for state in states]
    return sequence.transpose(0, 1) if batch_first else sequence, *last


def _fits(name: str, tensor: torch.Tensor, holds: Any, why: str) -> None:
    if not holds:
        raise RuntimeError(f"a recurrent layer's {name} of shape {tuple(tensor.shape)} does not fit: {why}")

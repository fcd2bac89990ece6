"""Updates of parameters by an optimizer, as formulas in a network that has their gradients.

Each formula follows torch's own, operation by operation. What may change from step to step (learning rates,
bias corrections) is read from a tensor of numbers, one row for each group of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import dace
import numpy as np

from daceml.autodiff.optimizer_rules import RULES
from daceml.onnx_ops.binding import operand
from daceml.onnx_ops.tensor import Output, Tensor
from daceml.onnx_ops.trace import Trace, tracing
from daceml.sdfg.builder import Builder
from daceml.sdfg.network import Network
from daceml.sdfg.scalar import compute_type, read

Numbers = Mapping[str, Tensor]
# (parameter, gradient, state, numbers of its group) -> new parameter, and new state by name
Update = Callable[[Tensor, Tensor, Mapping[str, Tensor], Numbers], tuple[Tensor, dict[str, Tensor]]]


def _sgd(p: Tensor, g: Tensor, state: Mapping[str, Tensor], n: Numbers) -> tuple[Tensor, dict[str, Tensor]]:
    g = g + n["weight_decay"] * p
    return p - n["lr"] * g, {}


def _momentum(nesterov: bool) -> Update:
    def update(
        p: Tensor, g: Tensor, state: Mapping[str, Tensor], n: Numbers
    ) -> tuple[Tensor, dict[str, Tensor]]:
        g = g + n["weight_decay"] * p
        velocity = n["momentum"] * state["momentum_buffer"] + n["share"] * g
        direction = g + n["momentum"] * velocity if nesterov else velocity
        return p - n["lr"] * direction, {"momentum_buffer": velocity}

    return update


def _adam(decoupled: bool) -> Update:
    def update(
        p: Tensor, g: Tensor, state: Mapping[str, Tensor], n: Numbers
    ) -> tuple[Tensor, dict[str, Tensor]]:
        if decoupled:
            p = p * n["kept"]
        else:
            g = g + n["weight_decay"] * p
        mean = state["exp_avg"] + n["mean_share"] * (g - state["exp_avg"])
        square = state["exp_avg_sq"] * n["beta2"] + n["square_share"] * g * g
        size = np.sqrt(square) / n["square_correction"] + n["eps"]
        return p - n["step_size"] * (mean / size), {"exp_avg": mean, "exp_avg_sq": square}

    return update


UPDATES: dict[str, Update] = {
    "SGD": _sgd,
    "SGD momentum": _momentum(nesterov=False),
    "SGD nesterov": _momentum(nesterov=True),
    "Adam": _adam(decoupled=False),
    "AdamW": _adam(decoupled=True),
}


@dataclass(frozen=True, kw_only=True)
class Updated:
    """A parameter that is updated.

    Attributes:
        array: of the parameter, one of the network's weights.
        gradient: array with its gradient.
        rule: key in `RULES` and `UPDATES`.
        row: of its group in the array of numbers.
        state: name -> state_dict key of the tensor that it is bound to.
        maximize: go along the gradient instead of against it.
    """

    array: str
    gradient: str
    rule: str
    row: int
    state: Mapping[str, str]
    maximize: bool = False


def add_updates(network: Network, updated: Sequence[Updated], rows: int) -> str:
    """Let a network update its parameters. Mutates it.

    Args:
        rows: number of groups.
    Returns:
        array of the numbers: [rows, columns] float64, a new input; each row has its rule's numbers first.
    """
    sdfg = network.sdfg
    columns = max(len(RULES[u.rule].numbers) for u in updated)
    numbers, _ = sdfg.add_array("numbers", [rows, columns], dace.float64, find_new_name=True)
    builder = Builder(sdfg, network.state)
    for change in updated:
        _add(network, change, numbers, builder)
    network.inputs = (*network.inputs, numbers)
    return numbers


def _add(network: Network, change: Updated, numbers: str, builder: Builder) -> None:
    sdfg, rule = network.sdfg, RULES[change.rule]
    desc = sdfg.arrays[change.array]
    shape, dtype = tuple(desc.shape), desc.dtype
    wide = compute_type(dtype)
    table = sdfg.arrays[numbers].shape
    trace = Trace("Update", sdfg.arrays)
    trace.stem = f"update_{change.array}"
    targets: dict[str, str] = {}
    state: dict[str, Tensor] = {}
    for name in rule.state:
        held, _ = sdfg.add_array(f"{change.array}_{name}", shape, dtype, find_new_name=True)
        network.weights[held] = change.state[name]
        state[name] = operand(held, dtype, shape).astype(wide)
        targets[name] = _next(network, held)
    new = _next(network, change.array)
    with tracing(trace):
        known = {
            name: Tensor((), wide, _number(numbers, change.row, column, tuple(table)), trace=trace).astype(
                wide
            )
            for column, name in enumerate(rule.numbers)
        }
        gradient = operand(change.gradient, dtype, shape).astype(wide)
        value, states = UPDATES[change.rule](
            operand(change.array, dtype, shape).astype(wide),
            -gradient if change.maximize else gradient,
            state,
            known,
        )
        # what is new is written before anything is replaced: every formula reads what was
        for name, target in targets.items():
            Output(shape, dtype, target, trace)[:] = states[name]
        Output(shape, dtype, new, trace)[:] = value
    trace.commit(builder)


def _number(numbers: str, row: int, column: int, shape: tuple[int, ...]):
    return lambda _: read(numbers, dace.float64, (row, column), shape)


def _next(network: Network, array: str) -> str:
    """A new array for the next value of one that the module holds."""
    desc = network.sdfg.arrays[array]
    name, _ = network.sdfg.add_transient(f"{array}_next", desc.shape, desc.dtype, find_new_name=True)
    network.mutations[name] = array
    return name

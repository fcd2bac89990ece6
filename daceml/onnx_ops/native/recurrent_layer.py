"""One direction of a recurrent operator: its activations, its state, and the loops of a step.

The state of a sequence keeps every step: `[steps + 1, batch, parts * hidden]`, the hidden values first. Steps
beyond the length of a sequence carry the state on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import dace
import numpy as np

from daceml.onnx_ops.tracing.functions import maximum, minimum, sigmoid, where
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, full, sum_over
from daceml.onnx_ops.tracing.trace import Refused
from daceml.sdfg.builder import parameters, reduced_parameters
from daceml.sdfg.recurrence import Recurrence
from daceml.sdfg.scalar import Index, Scalar, compute_type, index_value, literal, reduce_over
from daceml.sdfg.scatter import Loop

Activation = Callable[[Scalar], Scalar]

# name -> function of (x, alpha, beta), and the defaults of alpha and beta
_ACTIVATIONS: dict[str, tuple[Callable[[Scalar, float, float], Scalar], float, float]] = {
    # NaN stays, and the derivative at 0 is 0
    "relu": (lambda x, a, b: where(x <= 0, literal(0, x.dtype), x), 0, 0),
    "tanh": (lambda x, a, b: np.tanh(x), 0, 0),
    "sigmoid": (lambda x, a, b: sigmoid(x), 0, 0),
    "affine": (lambda x, a, b: x * a + b, 1, 0),
    "leakyrelu": (lambda x, a, b: where(x < 0, x * a, x), 0.01, 0),
    "thresholdedrelu": (lambda x, a, b: where(x > a, x, literal(0, x.dtype)), 1, 0),
    "scaledtanh": (lambda x, a, b: a * np.tanh(b * x), 1, 1),
    "hardsigmoid": (lambda x, a, b: maximum(minimum(x * a + b, 1), 0), 0.2, 0.5),
    "elu": (lambda x, a, b: where(x < 0, (np.exp(minimum(x, 0)) - 1) * a, x), 1, 0),
    "softsign": (lambda x, a, b: x / (abs(x) + 1), 0, 0),
    "softplus": (lambda x, a, b: maximum(x, 0) + np.log1p(np.exp(-abs(x))), 0, 0),
}


def activations_of(
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    clip: float | None,
    defaults: Sequence[str],
) -> list[Activation]:
    """Functions in order; each name that has an alpha takes the next one of the list, where one is left."""
    rest_a, rest_b = list(alphas or ()), list(betas or ())
    found: list[Activation] = []
    for name in names or defaults:
        if name.lower() not in _ACTIVATIONS:
            raise Refused(f"there is no activation {name!r}")
        function, alpha, beta = _ACTIVATIONS[name.lower()]
        alpha = rest_a.pop(0) if alpha and rest_a else alpha
        beta = rest_b.pop(0) if (beta or name.lower() == "affine") and rest_b else beta

        def activation(
            x: Scalar,
            function: Callable[[Scalar, float, float], Scalar] = function,
            alpha: float = alpha,
            beta: float = beta,
        ) -> Scalar:
            x = x if clip is None else maximum(minimum(x, clip), -clip)
            return function(x, alpha, beta)

        found.append(activation)
    return found


@dataclass(kw_only=True)
class Layer:
    """One direction of one operator.

    Attributes:
        x: [steps, batch, inputs].
        w, r: weights [gates * hidden, inputs] and [gates * hidden, hidden] of this direction.
        bias: of input and state, [2 * gates * hidden]; None is zeros.
        lengths: [batch]; None: every sequence is whole.
        backward: from the last step to the first.
        parts: what the state holds for each hidden unit.
        states: of every direction, [directions, steps + 1, batch, parts * hidden].
        direction: which of them is this one's.
    """

    x: Tensor
    w: Tensor
    r: Tensor
    bias: Tensor | None
    lengths: Tensor | None
    backward: bool
    hidden: int
    gates: int
    parts: int
    states: Tensor
    direction: int

    def __post_init__(self) -> None:
        self.steps, self.batch = self.x.shape[:2]
        self.dtype = compute_type(self.x.dtype)
        self.lane, self.step, self.unit = parameters(1)[0], *reduced_parameters(2)
        self.k = reduced_parameters(3)[2]

    def place(self, n: Index, step: Index) -> Index | Scalar:
        """The place of a step in the input, and the step of a place: the same function."""
        if not self.backward:
            return step
        if self.lengths is None:
            return self.steps - 1 - step
        length = self.lengths[(n,)].astype(dace.int64)
        inside = index_value(step) < length
        return where(inside, length - 1 - index_value(step), index_value(step))

    def inside(self, n: Index, step: Index) -> Scalar | None:
        """Whether a sequence reaches a step; None where every one does."""
        if self.lengths is None:
            return None
        return index_value(step) < self.lengths[(n,)].astype(dace.int64)

    def projected(self, input_bias: Callable[[Index], Scalar | None]) -> Tensor:
        """The share of the input in each gate of each step: [steps, batch, gates * hidden]."""

        def element(step: Index, n: Index, row: Index) -> Scalar:
            at = self.place(n, step)
            total = sum_over((self.w.shape[1],), lambda k: self.x[(at, n, k)] * self.w[(row, k)])
            bias = input_bias(row)
            return total if bias is None else total + bias

        return compute((self.steps, self.batch, self.gates * self.hidden), element).materialize()

    def both_biases(self, row: Index) -> Scalar | None:
        """What a row adds whatever comes."""
        if self.bias is None:
            return None
        return self.bias[(row,)] + self.bias[(row + self.gates * self.hidden,)]

    def now(self, part: int, unit: Index | None = None) -> Scalar:
        """What this step has written of a part of the state."""
        return self._held(self.step + 1, part, unit)

    def before(self, part: int, unit: Index | None = None) -> Scalar:
        """A part of the state after the step before."""
        return self._held(self.step, part, unit)

    def _held(self, step: Index, part: int, unit: Index | None) -> Scalar:
        place = part * self.hidden + (self.unit if unit is None else unit)
        return self.states[(self.direction, step, self.lane, place)]

    def through(self, row: Index, values: Callable[[Index], Scalar]) -> Scalar:
        """A row of the state's weights times a vector."""
        if self.hidden == 1:
            return values(0) * self.r[(row, 0)]
        return reduce_over("sum", [self.k], [self.hidden], values(self.k) * self.r[(row, self.k)]).astype(
            self.dtype
        )

    def carried(self, value: Scalar, part: int) -> Scalar:
        """The new value, or beyond the end of a sequence the one before."""
        inside = self.inside(self.lane, self.step)
        return value if inside is None else where(inside, value, self.before(part))

    def write(self, part: int, value: Scalar, rows: int | None = None) -> Loop:
        """A loop over the units, or more rows, of a part."""
        return Loop(
            params=(self.unit,),
            extents=(self.hidden if rows is None else rows,),
            index=(self.direction, self.step + 1, self.lane, part * self.hidden + self.unit),
            value=value,
        )

    def run(self, initial: Sequence[Tensor | None], loops: Sequence[Loop]) -> None:
        """Record the recurrence; `initial` are the first parts of the state, [batch, hidden] each."""
        trace, start = self.x.trace, self.stacked(initial, "initial")
        trace.computations.append(
            Recurrence(
                label=trace.label,
                target=str(self.states.array),
                params=(self.lane,),
                extents=(self.batch,),
                start=Loop(
                    params=(self.step,),
                    extents=(len(initial) * self.hidden,),
                    index=(self.direction, 0, self.lane, self.step),
                    value=start[(self.lane, self.step)],
                ),
                step=self.step,
                steps=self.steps,
                loops=tuple(loops),
            )
        )

    def stacked(self, parts: Sequence[Tensor | None], what: str) -> Tensor:
        """Parts [batch, hidden] beside each other in one array, None as zeros."""
        shape = (self.batch, len(parts) * self.hidden)
        trace = self.x.trace
        held = Output(shape, self.dtype, trace.intermediate(what, shape, self.dtype).name, trace)
        for n, part in enumerate(parts):
            given = full((self.batch, self.hidden), 0, self.dtype) if part is None else part
            held[:, n * self.hidden : (n + 1) * self.hidden] = given
        return held

    def all_steps(self) -> Tensor:
        """[steps, batch, hidden], in the order of the input; zeros beyond the end of a sequence."""

        def element(step: Index, n: Index, unit: Index) -> Scalar:
            value = self.states[(self.direction, self.place(n, step) + 1, n, unit)]
            inside = self.inside(n, step)
            return value if inside is None else where(inside, value, literal(0, self.dtype))

        return compute((self.steps, self.batch, self.hidden), element)

    def last(self, part: int) -> Tensor:
        """A part of the state after the last step: [batch, hidden]."""
        return self.states[self.direction, self.steps, :, part * self.hidden : (part + 1) * self.hidden]

"""Back-propagation through time: one direction of a recurrent operator, from its last step to its first.

What flows back is kept for every step, as the states of the forward pass are: `[steps + 1, batch, parts *
hidden]`, the gradient of the hidden values first, then those of the gates. So all that weights and inputs get
is a product over all steps at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from daceml.autodiff.scalar_derivatives import derivative
from daceml.onnx_ops.native.recurrent_layer import Activation, Layer
from daceml.onnx_ops.tracing.functions import where
from daceml.onnx_ops.tracing.tensor import Output, Tensor, compute, sum_over
from daceml.sdfg.recurrence import Recurrence
from daceml.sdfg.scalar import Index, Scalar, index_value, literal, read, reduce_over
from daceml.sdfg.scalar_rewrite import replace_parts
from daceml.sdfg.scatter import Loop


def slope(function: Activation, x: Scalar, cotangent: Scalar) -> Scalar:
    """The cotangent of x, for that of function(x)."""
    leaf = read("x", x.dtype, (0,), (1,))
    found = derivative(function(leaf), cotangent, lambda part: part is leaf)
    if not found:
        return literal(0.0, cotangent.dtype)
    total = found[0].cotangent
    for part in found[1:]:
        total = total + part.cotangent
    return replace_parts(total, {id(leaf): x})


class Reverse:
    """The steps of a layer, backwards: step s is the one that the forward pass took as T - 1 - s.

    Args:
        layer: with the states that the forward pass left.
        parts: what is kept for each hidden unit and step.
        cotangent: of what the layer gave at each step, [steps, directions, batch, hidden].
    """

    def __init__(self, layer: Layer, parts: int, cotangent: Tensor | None) -> None:
        self.layer, self.parts, self.dtype = layer, parts, layer.dtype
        self.hidden, self.steps, self.batch = layer.hidden, layer.steps, layer.batch
        self.step, self.lane, self.unit = layer.step, layer.lane, layer.unit
        self.time = self.steps - 1 - self.step
        shape = (self.steps + 1, self.batch, parts * self.hidden)
        trace = layer.x.trace
        self.array = trace.intermediate("flowing", shape, self.dtype).name
        self.held = Output(shape, self.dtype, self.array, trace)
        self.weights = layer.r.transpose(1, 0).materialize()
        self.cotangent = None if cotangent is None else self._in_order(cotangent)

    def _in_order(self, cotangent: Tensor) -> Tensor:
        """In the order of the steps, and nothing beyond the end of a sequence: [steps, batch, hidden]."""
        layer = self.layer

        def element(step: Index, n: Index, unit: Index) -> Scalar:
            value = cotangent[(layer.place(n, step), layer.direction, n, unit)].astype(self.dtype)
            inside = layer.inside(n, step)
            return value if inside is None else where(inside, value, literal(0.0, self.dtype))

        return compute((self.steps, self.batch, self.hidden), element).materialize()

    def kept(self, part: int) -> Scalar:
        """A part of the state after the step."""
        return self._state(self.time + 1, part)

    def kept_before(self, part: int) -> Scalar:
        """A part of the state before the step."""
        return self._state(self.time, part)

    def _state(self, step: Index, part: int) -> Scalar:
        place = part * self.hidden + self.unit
        return self.layer.states[(self.layer.direction, step, self.lane, place)]

    def flowing(self, part: int) -> Scalar:
        """What came back from the step behind."""
        return self.held[(self.step, self.lane, part * self.hidden + self.unit)]

    def made(self, part: int, unit: Index | None = None) -> Scalar:
        """What this step has written."""
        place = part * self.hidden + (self.unit if unit is None else unit)
        return self.held[(self.step + 1, self.lane, place)]

    def hidden_cotangent(self) -> Scalar:
        """Of the hidden values after the step."""
        flowing = self.flowing(0)
        return (
            flowing if self.cotangent is None else flowing + self.cotangent[(self.time, self.lane, self.unit)]
        )

    def through(self, part: int, rows: int, first: int = 0) -> Scalar:
        """What the parts from one on give the hidden values before: over `rows` of the state's weights."""
        if rows == 1:
            return self.made(part, 0) * self.weights[(self.unit, first)]
        k = self.layer.k
        value = self.made(part, k) * self.weights[(self.unit, first + k)]
        return reduce_over("sum", [k], [rows], value).astype(self.dtype)

    def write(self, part: int, value: Scalar, rows: int | None = None) -> Loop:
        """Nothing flows to a step beyond the end of a sequence."""
        inside = self.layer.inside(self.lane, self.time)
        if inside is not None:
            value = where(inside, value, literal(0.0, self.dtype))
        return self._loop(part, value, rows)

    def carry(self, part: int, value: Scalar) -> Loop:
        """What flows on; beyond the end of a sequence, what came."""
        inside = self.layer.inside(self.lane, self.time)
        return self._loop(part, value if inside is None else where(inside, value, self.flowing(part)), None)

    def _loop(self, part: int, value: Scalar, rows: int | None) -> Loop:
        return Loop(
            params=(self.unit,),
            extents=(self.hidden if rows is None else rows,),
            index=(self.step + 1, self.lane, part * self.hidden + self.unit),
            value=value,
        )

    def run(self, last: Sequence[Tensor | None], loops: Sequence[Loop]) -> None:
        """Record the recurrence; `last` are the cotangents of the first parts after all steps."""
        layer, trace = self.layer, self.layer.x.trace
        start = layer.stacked(last, "last")
        trace.computations.append(
            Recurrence(
                label=trace.label,
                target=self.array,
                params=(self.lane,),
                extents=(self.batch,),
                start=Loop(
                    params=(self.step,),
                    extents=(len(last) * self.hidden,),
                    index=(0, self.lane, self.step),
                    value=start[(self.lane, self.step)],
                ),
                step=self.step,
                steps=self.steps,
                loops=tuple(loops),
            )
        )

    def first(self, part: int) -> Tensor:
        """The cotangent of what the first step started from: [batch, hidden]."""
        return self.held[self.steps, :, part * self.hidden : (part + 1) * self.hidden]

    def at(self, step: Index | Scalar, n: Index, row: Index, part: int) -> Scalar:
        """The cotangent of a row of gates, from `part` on, at a step of the forward pass."""
        place = index_value(self.steps) - step if isinstance(step, Scalar) else self.steps - step
        return self.held[(place, n, part * self.hidden + row)]

    def inputs(self, part: int, rows: int) -> Tensor:
        """The gradient of the input by this direction: [steps, batch, inputs]."""
        layer = self.layer

        def element(place: Index, n: Index, i: Index) -> Scalar:
            step = layer.place(n, place)
            return sum_over((rows,), lambda row: self.at(step, n, row, part) * layer.w[(row, i)])

        return compute(layer.x.shape, element)

    def product(
        self, part: int, rows: int, columns: Index, other: Callable[[Index, Index, Index], Scalar]
    ) -> Tensor:
        """Over all steps and sequences, rows of gates times what they were taken of: [rows, columns]."""

        def element(row: Index, column: Index) -> Scalar:
            return sum_over(
                (self.steps, self.batch),
                lambda t, n: self.at(t, n, row, part) * other(t, n, column).astype(self.dtype),
            )

        return compute((rows, columns), element)

    def input_weights(self, part: int, rows: int) -> Tensor:
        """[rows, inputs]."""
        x, place = self.layer.x, self.layer.place
        return self.product(part, rows, x.shape[2], lambda t, n, i: x[(place(n, t), n, i)])

    def state_weights(self, part: int, rows: int, source: int = 0, after: int = 0) -> Tensor:
        """[rows, hidden]: rows taken of a part of the state, with `after` 1 of what the step itself made."""
        layer = self.layer

        def value(t: Index, n: Index, k: Index) -> Scalar:
            return layer.states[(layer.direction, t + after, n, source * self.hidden + k)]

        return self.product(part, rows, self.hidden, value)

    def total(self, part: int, rows: int, source: int | None = None, after: int = 0) -> Tensor:
        """Over all steps and sequences, for each row, times a part of the state of that unit: [rows]."""
        layer = self.layer

        def element(row: Index) -> Scalar:
            def term(t: Index, n: Index) -> Scalar:
                value = self.at(t, n, row, part)
                if source is None:
                    return value
                place = source * self.hidden + row
                return value * layer.states[(layer.direction, t + after, n, place)]

            return sum_over((self.steps, self.batch), term)

        return compute((rows,), element)

"""Small DaCe programs, and the same computations in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import dace
import numpy as np
import torch

N = dace.symbol("N")
M = dace.symbol("M")
f8, f4, i8 = dace.float64, dace.float32, dace.int64
Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Program:
    """A DaCe program and its oracle.

    Attributes:
        program: what `@dace.program` made.
        shapes: of its arguments; empty for a number.
        outputs, inputs: what is differentiated.
        oracle: takes the arguments as tensors and gives the outputs.
        fixed: arguments that are not random, such as positions.
        sizes: values of symbols.
    """

    program: dace.frontend.python.parser.DaceProgram
    shapes: dict[str, Shape]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    oracle: Callable[..., tuple[torch.Tensor, ...]]
    fixed: dict[str, object] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


PROGRAMS: dict[str, Program] = {}


def case(
    shapes: dict[str, Shape], outputs: str, inputs: str, program: object, **more: object
) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Registers the oracle that follows."""

    def register(oracle: Callable[..., object]) -> Callable[..., object]:
        def tuple_of(**tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            result = oracle(**tensors)
            return result if isinstance(result, tuple) else (result,)

        PROGRAMS[program.name.removeprefix("tests_autodiff_programs_")] = Program(
            program=program, shapes=shapes, outputs=tuple(outputs.split()), inputs=tuple(inputs.split()),
            oracle=tuple_of, **more,
        )  # fmt: skip
        return oracle

    return register


@dace.program
def jacobi(A: f8[N, N], steps: i8):
    for _ in range(3):
        A[1:-1, 1:-1] = np.sin(A[:-2, 1:-1]) + A[2:, 1:-1] * A[1:-1, 2:] + 0.5 * A[1:-1, :-2]


@case({"A": (6, 6)}, "A", "A", jacobi, fixed={"steps": 3}, sizes={"N": 6})
def _(A, steps):
    for _ in range(3):
        inner = torch.sin(A[:-2, 1:-1]) + A[2:, 1:-1] * A[1:-1, 2:] + 0.5 * A[1:-1, :-2]
        A = A.clone()
        A[1:-1, 1:-1] = inner
    return A


@dace.program
def prefix(x: f8[N], y: f8[N]):
    y[0] = x[0] * x[0]
    for i in range(1, N):
        y[i] = y[i - 1] * np.cos(x[i]) + x[i]


@case({"x": (7,), "y": (7,)}, "y", "x", prefix, sizes={"N": 7})
def _(x, y):
    found = [x[0] * x[0]]
    for i in range(1, 7):
        found.append(found[-1] * torch.cos(x[i]) + x[i])
    return torch.stack(found)


@dace.program
def suffix(x: f8[N]):
    for i in range(N - 3, -1, -2):
        x[i] = x[i] * x[i + 2]


@case({"x": (8,)}, "x", "x", suffix, sizes={"N": 8})
def _(x):
    v = list(x.unbind())
    for i in range(5, -1, -2):
        v[i] = v[i] * v[i + 2]
    return torch.stack(v)


@dace.program
def softmax(X: f8[N, M], Y: f8[N, M]):
    largest = np.max(X, axis=1)
    e = np.exp(X - largest[:, np.newaxis])
    total = np.sum(e, axis=1)
    Y[:] = e / total[:, np.newaxis]


@case({"X": (3, 5), "Y": (3, 5)}, "Y", "X", softmax, sizes={"N": 3, "M": 5})
def _(X, Y):
    return torch.softmax(X, 1)


@dace.program
def mlp(X: f8[N, 5], W: f8[5, 4], b: f8[4], V: f8[4, 3], Y: f8[N, 3]):
    hidden = np.maximum(X @ W + b, 0.0)
    Y[:] = np.tanh(hidden @ V)


@case({"X": (6, 5), "W": (5, 4), "b": (4,), "V": (4, 3), "Y": (6, 3)}, "Y", "X W b V", mlp, sizes={"N": 6})
def _(X, W, b, V, Y):
    return torch.tanh(torch.relu(X @ W + b) @ V)


@dace.program
def relu_in_place(x: f8[N], y: f8[N]):
    for i in dace.map[0:N]:
        x[i] = max(x[i], 0.0) * y[i]


@case({"x": (9,), "y": (9,)}, "x", "x y", relu_in_place, sizes={"N": 9})
def _(x, y):
    return torch.relu(x) * y


@dace.program
def branch(x: f8[N], y: f8[N], out: f8[1]):
    s = np.sum(x)
    if s > 0:
        y[:] = x * x
    else:
        y[:] = np.sin(x) * s
    out[0] = np.sum(y * x)


@case({"x": (6,), "y": (6,)}, "out", "x", branch, fixed={"out": np.zeros(1)}, sizes={"N": 6})
def _(x, y, out):
    s = x.sum()
    return ((x * x if s > 0 else torch.sin(x) * s) * x).sum().reshape(1)


@dace.program
def branch_in_loop(x: f8[N], y: f8[N]):
    for i in range(1, N):
        if x[i] > 0.0:
            x[i] = x[i] * x[i - 1]
            y[i] = x[i] * y[i - 1]
        else:
            x[i] = np.exp(x[i])


@case({"x": (8,), "y": (8,)}, "x y", "x y", branch_in_loop, sizes={"N": 8})
def _(x, y):
    x, y = list(x.unbind()), list(y.unbind())
    for i in range(1, 8):
        if x[i] > 0:
            x[i] = x[i] * x[i - 1]
            y[i] = x[i] * y[i - 1]
        else:
            x[i] = torch.exp(x[i])
    return torch.stack(x), torch.stack(y)


@dace.program
def square_of(a: f8[N], b: f8[N]):
    b[:] = a * a + 1.0


@dace.program
def nested(x: f8[N], y: f8[N]):
    t = np.empty_like(x)
    square_of(x, t)
    square_of(t, y)


@case({"x": (5,), "y": (5,)}, "y", "x", nested, sizes={"N": 5})
def _(x, y):
    return (x * x + 1) ** 2 + 1


@dace.program
def broadcast(a: f8[N, 1], b: f8[M], c: f8[1], y: f8[N, M]):
    y[:] = a * b + c * a


@case({"a": (4, 1), "b": (3,), "c": (1,), "y": (4, 3)}, "y", "a b c", broadcast, sizes={"N": 4, "M": 3})
def _(a, b, c, y):
    return a * b + c * a


@dace.program
def gather(table: f8[N, 3], rows: i8[M], y: f8[M, 3]):
    for i, j in dace.map[0:M, 0:3]:
        y[i, j] = table[rows[i], j] * table[rows[i], j]


@case(
    {"table": (5, 3), "y": (4, 3)}, "y", "table", gather,
    fixed={"rows": np.array([1, 4, 1, 0])}, sizes={"N": 5, "M": 4},
)  # fmt: skip
def _(table, rows, y):
    return table[rows] ** 2


@dace.program
def triangular(A: f8[6, 6], x: f8[6]):
    for i in range(6):
        for j in range(i):
            x[i] -= A[i, j] * x[j]
        x[i] = x[i] / (A[i, i] * A[i, i] + 1.0)


@case({"A": (6, 6), "x": (6,)}, "x", "A x", triangular)
def _(A, x):
    v = list(x.unbind())
    for i in range(6):
        for j in range(i):
            v[i] = v[i] - A[i, j] * v[j]
        v[i] = v[i] / (A[i, i] * A[i, i] + 1)
    return torch.stack(v)


@dace.program
def in_maps(x: f8[N], y: f8[N]):
    for i in dace.map[0:N]:
        if x[i] > 0.0:
            y[i] = x[i] * x[i]
        else:
            t = x[i]
            for k in range(3):
                t = t * x[i] + k
            y[i] = t


@case({"x": (6,), "y": (6,)}, "y", "x", in_maps, sizes={"N": 6})
def _(x, y):
    t = x
    for k in range(3):
        t = t * x + k
    return torch.where(x > 0, x * x, t)


@dace.program
def overwritten(x: f8[N], y: f8[N]):
    t = x * x
    y[:] = np.sin(t)
    t[:] = y * x
    y[:] = y * t
    t[0:2] = 1.0
    y += t * x


@case({"x": (6,), "y": (6,)}, "y", "x", overwritten, sizes={"N": 6})
def _(x, y):
    y = torch.sin(x * x)
    t = y * x
    y = y * t
    t = torch.cat([torch.ones(2, dtype=x.dtype), t[2:]])
    return y + t * x


@dace.program
def reductions(x: f8[N, M], lowest: f8[M], mean: f8[N], largest_square: f8[1]):
    lowest[:] = np.min(x, axis=0)
    mean[:] = np.mean(x * x, axis=1)
    largest_square[0] = np.max(x * x)


@case(
    {"x": (3, 4), "lowest": (4,), "mean": (3,), "largest_square": (1,)},
    "lowest mean largest_square", "x", reductions,
    sizes={"N": 3, "M": 4},
)  # fmt: skip
def _(x, lowest, mean, largest_square):
    return x.amin(0), (x * x).mean(1), (x * x).max().reshape(1)


@dace.program
def reshaped(x: f8[4, 6], y: f8[3, 8], z: f8[24]):
    y[:] = np.reshape(x, (3, 8)) * 2.0
    z[:] = np.reshape(y * y, (24,))


@case({"x": (4, 6), "y": (3, 8), "z": (24,)}, "z", "x", reshaped)
def _(x, y, z):
    return (x * 2).reshape(24) ** 2


@dace.program
def accumulated(x: f8[N, M], y: f8[M]):
    for i, j in dace.map[0:N, 0:M]:
        with dace.tasklet:
            a << x[i, j]  # noqa: F821
            out >> y(1, lambda u, v: u + v)[j]  # noqa: F821
            out = a * a  # noqa: F821, F841


@case({"x": (3, 4), "y": (4,)}, "y", "x y", accumulated, sizes={"N": 3, "M": 4})
def _(x, y):
    return y + (x * x).sum(0)


@dace.program
def numbers(x: f8[N], scale: f8, count: i8, y: f8[N]):
    offset = scale * scale
    y[:] = x * offset + count


@case({"x": (4,), "y": (4,)}, "y", "x scale", numbers, fixed={"count": 3, "scale": 0.7}, sizes={"N": 4})
def _(x, scale, count, y):
    return x * scale * scale + count


@dace.program
def power_iteration(A: f8[4, 4], x: f8[4], steps: i8):
    for _ in range(N):
        y = A @ x
        x[:] = y / np.sqrt(np.sum(y * y))


@case({"A": (4, 4), "x": (4,)}, "x", "A x", power_iteration, fixed={"steps": 4}, sizes={"N": 4})
def _(A, x, steps):
    for _ in range(4):
        y = A @ x
        x = y / torch.sqrt((y * y).sum())
    return x


@dace.program
def unused(x: f8[N], z: f8[N], y: f8[N]):
    kept = np.floor(x)
    y[:] = kept * 2.0 + x
    z[:] = 3.0


@case({"x": (4,), "z": (4,), "y": (4,)}, "y", "x z", unused, sizes={"N": 4})
def _(x, z, y):
    return torch.floor(x) * 2 + x


@dace.program
def half_open(x: f4[N], y: f4[N]):
    for i in dace.map[0:N:2]:
        y[i] = x[N - 1 - i] * x[i]


@case({"x": (7,), "y": (7,)}, "y", "x y", half_open, sizes={"N": 7})
def _(x, y):
    y = y.clone()
    y[::2] = (x.flip(0) * x)[::2]
    return y


@dace.program
def symmetric(A: f8[N, N], y: f8[N, N]):
    y[:] = A @ np.transpose(A)
    for i in range(N):
        y[i, :] = y[i, :] * y[i, i]


@case({"A": (4, 4), "y": (4, 4)}, "y", "A", symmetric, sizes={"N": 4})
def _(A, y):
    y = A @ A.T
    return y * torch.diagonal(y)[:, None]

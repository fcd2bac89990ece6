"""Calls of torch's kernels that a program makes, each run alone to see how long it takes.

Which of its kernels torch runs, and what that copies first, depends on layouts, sizes and the number of
threads, and the costs of a step do not tell it: of two convolutions with as many operations, one in each
layout, either may take several times as long as the other. So a call that has not run in a program of the
model is timed alone, on arrays of the same shapes and strides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, log
from typing import TYPE_CHECKING, Any

import torch

from daceml.config import config
from daceml.errors import first_line
from daceml.onnx_ops.domain.convolution_activation import ACTIVATIONS
from daceml.runtime.records.manifest import PreparedRecord
from daceml.runtime.torch_types import DTYPES
from daceml.runtime.weight_preparation import prepared_weights
from daceml.sdfg.element_codes import torch_code
from daceml.sdfg.external import AtenCall, FreshResult, PackedWeight, TensorView
from daceml.sdfg.sizes import number, size

if TYPE_CHECKING:
    from daceml.codegen.planning.plan import Plan
    from daceml.tuning.model_call import Lowered
    from daceml.tuning.step_features import StepFacts
    from daceml.tuning.step_times import StepTimes

_log = logging.getLogger(__name__)

_Run = Callable[[], object]
_Function = Callable[..., object]

_VALUE = 0.5  # of every element: how long these kernels take does not depend on values
_FEWEST_RUNS, _MOST_RUNS = 3, 50
_PATIENCE_S = 0.02  # after which no run begins beyond the fewest
_DISTURBED, _LONGER = 4.0, 10  # times what costs say, beyond which it lasts so many times as long
_APART = 1.3  # the second shortest run over the shortest, beyond which something disturbs most runs
_ONEDNN_NAMES = dict(zip(ACTIVATIONS, ("none", "relu", "hardtanh", "swish"), strict=True))


@dataclass(kw_only=True)
class CallTrials:
    """Runs calls alone, and lets predictions know how long they take.

    Args:
        times: of steps, which learn it.
    Attributes:
        left_s: seconds that trials may still take: `DACEML_MEASURE` in all, so that 0 runs none.
    """

    times: StepTimes
    left_s: float = field(default_factory=lambda: float(config().measure))

    def learn(self, lowered: Lowered, *, pace: float = 1.0, known: bool = False) -> None:
        """Run the calls of a variant that have run neither in a program of the model nor alone.

        Args:
            lowered: with its plans.
            pace: by which what is learned is longer than the least time of a call, as measured steps are.
            known: whether the others run, too: how long they take alone and in the program tells what trials
                of calls of the same function mean.
        """
        steps = [(plan, step.action) for plan in lowered.plans for step in plan.steps]
        calls: dict[str, tuple[StepFacts, AtenCall, Plan]] = {}
        for fact, (plan, action) in zip(lowered.facts, steps, strict=True):
            if isinstance(action, AtenCall) and (known or self.times.untried(fact)):
                calls.setdefault(fact.key, (fact, action, plan))
        # what decides most comes first, while there is time
        for fact, call, plan in sorted(calls.values(), key=lambda one: -one[0].flops):
            if call.function not in _FUNCTIONS or self._expected_s(fact) > self.left_s:
                continue
            start_s = time.perf_counter()
            try:
                run = trial(call, plan, lowered.sizes)
                least_us, second_us = least_two_us(run, self.times.step(fact).us / pace)
                self.times.learn_trial(fact, least_us * pace, sigma=log(second_us / least_us))
            except RuntimeError as error:  # torch refuses it here: the step is predicted by its costs
                _log.debug("%s is not run alone: %s", call.function, first_line(error))
            self.left_s -= time.perf_counter() - start_s

    def _expected_s(self, fact: StepFacts) -> float:
        return (1 + _FEWEST_RUNS) * self.times.step(fact).us / 1e6


def trial(call: AtenCall, plan: Plan, sizes: Mapping[str, int]) -> _Run:
    """A call on its own arrays.

    Args:
        call: of a function for which there is a trial.
        plan: which makes the call.
        sizes: of symbolic dimensions.
    Raises:
        RuntimeError: torch refuses to make the arrays, or to pack a weight.
    """
    function = _FUNCTIONS[call.function]
    arguments = [_given(argument, plan, sizes) for argument in call.arguments]
    return lambda: function(*arguments)


def least_two_us(run: _Run, expected_us: float = inf) -> tuple[float, float]:
    """Microseconds of the two shortest runs of a call, after one that brings its arrays into the caches.

    Args:
        expected_us: by the costs of the step. If all runs take many times as long, or the two shortest
            differ by more than a third, something may disturb them, and they go on for longer.
    """
    found: list[float] = []
    with torch.no_grad():
        run()
        begun = time.perf_counter()
        while len(found) < _MOST_RUNS:
            start = time.perf_counter()
            patience_s = _PATIENCE_S
            if found and (min(found) > _DISTURBED * expected_us or _apart(found) > _APART):
                patience_s *= _LONGER
            if len(found) >= _FEWEST_RUNS and start > begun + patience_s:
                break
            run()
            found.append((time.perf_counter() - start) * 1e6)
    least, second, *_ = sorted(found)
    return least, second


def _apart(found: list[float]) -> float:
    least, second = sorted(found)[:2] if len(found) > 1 else (1.0, 1.0)
    return second / least


def _given(argument: object, plan: Plan, sizes: Mapping[str, int]) -> Any:
    """What torch's function is given for an argument of the call."""
    arrays = plan.network.sdfg.arrays
    match argument:
        case TensorView():
            shape = [number(n, sizes) for n in argument.sizes]
            strides = [number(n, sizes) for n in argument.strides]
            return _filled(shape, strides, DTYPES[torch_code(arrays[argument.array].dtype)])
        case PackedWeight():
            made, like = plan.network.prepared[argument.array], arrays[argument.array]
            shape = [number(size(n), sizes) for n in like.shape]
            record = PreparedRecord(
                function=made.function, keys=("weight",), numbers=made.numbers, reals=made.reals
            )
            weight = torch.full(shape, _VALUE, dtype=DTYPES[torch_code(like.dtype)])
            return prepared_weights([record], {"weight": weight})[0]
        case FreshResult():
            return True  # that this result is wanted
        case _:
            return argument


def _filled(shape: list[int], strides: list[int], dtype: torch.dtype) -> torch.Tensor:
    last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    return torch.full((last + 1,), _VALUE, dtype=dtype).as_strided(shape, strides)


def _convolution(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, _rank: int, *geometry: Any
) -> object:
    return torch.ops.aten.convolution.default(x, w, bias, *geometry)


def _packed_convolution(
    x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, other: torch.Tensor | None, _rank: int,
    strides: tuple[int, ...], pads: tuple[int, ...], dilations: tuple[int, ...], group: int,
    activation: int, low: float, high: float,
) -> object:  # fmt: skip
    """As `daceml/aten_packed.h` calls it."""
    name = ACTIVATIONS[activation]
    if other is not None:
        return torch.ops.mkldnn._convolution_pointwise.binary(
            x, other, packed, bias, pads, strides, dilations, group, "add", None,
            "relu" if name == "relu" else None, [], None,
        )  # fmt: skip
    limits = [low, high] if name == "clip" else []
    return torch.ops.mkldnn._convolution_pointwise.default(
        x, packed, bias, pads, strides, dilations, group, _ONEDNN_NAMES[name], limits, ""
    )


def _convolution_backward(
    dx: bool | None, dw: bool | None, db: bool | None,
    dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, _rank: int, *geometry: Any,
) -> object:  # fmt: skip
    biases = [dy.shape[1]] if db else None
    wanted = [bool(one) for one in (dx, dw, db)]
    return torch.ops.aten.convolution_backward.default(dy, x, w, biases, *geometry, wanted)


def _mm(y: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> object:
    return torch.mm(a, b, out=y)


def _addmm(
    y: torch.Tensor, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, beta: float, alpha: float
) -> object:
    return torch.addmm(c, a, b, beta=beta, alpha=alpha, out=y)


def _bmm(y: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> object:
    return torch.bmm(a, b, out=y)


def _packed_product(
    x: torch.Tensor, packed: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, rows: int
) -> object:
    return torch.ops.mkl._mkl_linear.default(x, packed, weight, bias, rows)


# Those of `daceml/aten.h` whose time depends on the kernel that torch chooses, as torch offers them in Python
_FUNCTIONS: Mapping[str, _Function] = {
    "convolution": _convolution,
    "packed_convolution": _packed_convolution,
    "convolution_backward": _convolution_backward,
    "mm_out": _mm,
    "addmm_out": _addmm,
    "bmm_out": _bmm,
    "packed_product": _packed_product,
}

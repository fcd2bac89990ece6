"""`verify`: a compiled module and eager PyTorch, both beside eager PyTorch in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from daceml.errors import ConfigurationError, DacemlError
from daceml.module.onnx_model import ONNXModel
from daceml.runtime.progress import publish
from daceml.text_tables import render, table
from daceml.verification.accuracy import Accuracy, TensorError
from daceml.verification.divergence import Diagnosis, error_row
from daceml.verification.peers import Call, Peers, module_peers, onnx_model_peers


@dataclass(frozen=True, kw_only=True)
class Verification:
    """How far a compiled module is from float64, and how far eager PyTorch is.

    Attributes:
        name: of the module.
        depth: steps of the compiled program; the error allowed grows with its square root.
        seeds: sets of inputs that were run.
        tensors: every output, and every buffer that a call changes, of every seed.
        diagnosis: a look at the intermediate values, where a tensor fails or where it was asked for.
        every_value: whether the intermediate values count, and are all shown.
        cut: why the module is not one program; "" where it is one.
    """

    name: str
    depth: int
    seeds: int
    tensors: tuple[TensorError, ...]
    diagnosis: Diagnosis | None = None
    every_value: bool = False
    cut: str = ""

    @property
    def passed(self) -> bool:
        """Whether every tensor is within its limit; intermediate values count where they were asked for."""
        values_pass = not (self.every_value and self.diagnosis and not self.diagnosis.passed)
        return values_pass and all(tensor.passed for tensor in self.tensors)

    @property
    def failures(self) -> tuple[TensorError, ...]:
        """Tensors outside their limits."""
        return tuple(tensor for tensor in self.tensors if not tensor.passed)

    @property
    def ill_conditioned(self) -> tuple[TensorError, ...]:
        """Tensors that pass only because eager PyTorch is as far from float64."""
        return tuple(tensor for tensor in self.tensors if tensor.ill_conditioned)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the verdict should know besides."""
        notes: list[str] = []
        if self.cut:
            notes.append(
                f"note: several programs, since {self.cut}; what runs eagerly is as in eager PyTorch"
            )
        if leaning := self.ill_conditioned:
            worst = max(leaning, key=lambda tensor: tensor.eager_error / max(tensor.rounding_limit, 1e-300))
            notes.append(
                f"note: {len(leaning)} of {len(self.tensors)} tensors pass only because eager itself is that "
                f"far from float64 (ill-conditioned): {worst.name}, eager's {worst.eager_error:.2e} where "
                f"rounding explains {worst.rounding_limit:.2e}"
            )
        if self.failures and all(_is_gradient(tensor) for tensor in self.failures):
            notes.append(
                "note: every result passes; verify does not locate the operator of a gradient. At a tie or "
                "kink (max, max pooling, sort, round, relu), rounding decides where a gradient goes. If that "
                "is the cause, daceml.verify(model.double(), x.double(), gradients=True) passes"
            )
        if lost := sum(tensor.unmeasured for tensor in self.tensors):
            notes.append(
                f"note: {lost} elements are finite in float64 only: that they overflow is compared, no more"
            )
        return tuple(notes)

    def to_json(self) -> dict[str, Any]:
        """Plain values for json.dumps; an error that is infinite is written as None."""
        return {
            "name": self.name,
            "passed": self.passed,
            "depth": self.depth,
            "seeds": self.seeds,
            "ill_conditioned": [tensor.name for tensor in self.ill_conditioned],
            "notes": list(self.notes),
            "tensors": [error_row(tensor) for tensor in self.tensors],
            "diagnosis": self.diagnosis.to_json() if self.diagnosis else None,
        }

    def __str__(self) -> str:
        rows = table(
            "tensor", "error", "eager's", "limit", "ratio", "result",
            paths=("tensor",), words=("result",), details=("ratio",),
        )  # fmt: skip
        for tensor in self.tensors:
            figures = (f"{x:.2e}" for x in (tensor.error, tensor.eager_error, tensor.limit))
            verdict = "pass" if tensor.passed else "FAIL"
            rows.add_row(tensor.name, *figures, _ratio(tensor), verdict)
        passed = sum(tensor.passed for tensor in self.tensors)
        runs = "1 set of inputs" if self.seeds == 1 else f"{self.seeds} sets of inputs"
        closing = f"{passed} of {len(self.tensors)} tensors within max(3 x eager's, 8 eps sqrt({self.depth}))"
        reasons = [f"{one.name}: {one.reason}" for one in self.tensors if one.reason and not one.passed]
        lines = [render(f"{self.name}: distance from float64, {runs}", rows, closing, *reasons, *self.notes)]
        if self.diagnosis is not None:
            lines += ["", self.diagnosis.text(every_value=self.every_value)]
        return "\n".join(lines) + "\n"


def _is_gradient(tensor: TensorError) -> bool:
    return ".gradient of " in tensor.name


def _ratio(tensor: TensorError) -> str:
    """error / eager's; eager may be exact, and then there is none."""
    return "-" if tensor.error > tensor.eager_error == 0.0 else f"{tensor.over_eager:.2f}"


def verify(
    module: nn.Module | ONNXModel,
    *inputs: Any,
    seeds: int = 1,
    intermediate: bool = False,
    gradients: bool = False,
    keywords: Mapping[str, Any] | None = None,
) -> Verification:
    """Compare a module's compiled form with eager PyTorch, both against eager PyTorch in float64.

    Neither the module nor its buffers change, nor torch's generator: copies run, from a seed of their own. An
    error is ||y - y64|| / ||y64||. Where a result is outside its limit, a second program that keeps every
    intermediate value tells which diverges first.

    Args:
        module: an nn.Module, which is compiled for this, or an `ONNXModel`, whose peers are ONNX Runtime in
            float32 and ONNX's reference evaluator in float64.
        inputs: positional arguments of a call.
        seeds: sets of inputs: the given one; for each further seed floating-point tensors are drawn from the
            normal distribution of the same mean and deviation, others are shuffled.
        intermediate: compare the intermediate values in any case; those outside their limits count.
        gradients: compare the gradients of inputs and parameters, too, as a training step gets them. Where a
            value stands at a kink, such as relu's, rounding decides which side's gradient it has.
        keywords: keyword arguments of the call.
    Raises:
        CallError: the module cannot run in float64.
        ConfigurationError: something that is no module; gradients of an ONNX model, or of a module that was
            compiled without them.
    """
    if not isinstance(seeds, int) or seeds < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"verify cannot run {seeds} seeds", fix="pass a number, seeds=1 or more")
    if gradients and isinstance(module, ONNXModel):
        raise ConfigurationError(
            "verify cannot compare gradients of an ONNX model",
            why="ONNX Runtime and ONNX's reference evaluator, its peers, have none",
            fix="leave gradients out, or verify the nn.Module",
        )
    call = Call(args=inputs, kwargs=keywords or {})
    with torch.no_grad(), torch.random.fork_rng(devices=()):
        if isinstance(module, ONNXModel):
            peers = onnx_model_peers(module)
        else:
            peers = module_peers(module, call, gradients=gradients)
        parts: list[Accuracy] = []
        for seed in range(seeds):
            publish("compare", seed, seeds)
            parts.append(peers.run(call.drawn(seed), seed))
        # what a forward pass computes says nothing about a gradient
        failed = [seed for seed, part in enumerate(parts) if not all(map(_is_gradient, part.failures))]
        diagnosis = None
        if failed or intermediate:
            publish("intermediate values")
            diagnosis = _diagnosis(peers, call.drawn(failed[0] if failed else 0), bool(failed))
    return Verification(
        name=peers.name,
        depth=peers.depth,
        seeds=seeds,
        tensors=Accuracy.joined(parts).tensors,
        diagnosis=diagnosis,
        every_value=intermediate,
        cut=peers.cut,
    )


def _diagnosis(peers: Peers, call: Call, outputs_fail: bool) -> Diagnosis:
    """What can be said about the intermediate values; that it fails must not hide what is known already."""
    try:
        return peers.diagnose(call.copied(), outputs_fail)
    except DacemlError as error:
        reason = f"{error.what}: {error.why}".rstrip(": ")
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    return Diagnosis(failure=" ".join(reason.split()))

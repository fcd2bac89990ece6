"""Ways to run the network of a case: eager, torch.compile and daceml, called or as graphs of daceml's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import daceml
from benchmarks.gpu.case import Case
from benchmarks.gpu.precisions import PRECISIONS
from benchmarks.gpu.subject import subject_of
from benchmarks.gpu.target import Target, in_precision, target_of, traffic_of
from benchmarks.gpu.timing import GRAPHS, OURS, Step
from benchmarks.gpu.without_draws import without_draws
from benchmarks.models.spec import ModelSpec
from benchmarks.peers import Casting, training_step

# What cases are measured with; where values alone are compared, the network has no dropout.
WAYS: dict[str, tuple[str, ...]] = {
    "times": ("eager", "inductor", OURS, OURS + GRAPHS),
    "autotune": ("inductor", "max_autotune", OURS),
    "block": ("eager", "inductor", OURS),
    "replays": ("eager", "inductor", OURS),
    "values": (OURS,),
    "small": (OURS,),
    "correctness": (OURS,),
}


@dataclass(frozen=True, kw_only=True)
class Ways:
    """Ways to run one module on one set of inputs.

    Attributes:
        names: of the ways, as `run_by` knows them.
        inputs: they require gradients in training.
        compiled: the modules that were compiled by daceml so far, by way.
    """

    names: tuple[str, ...]
    target: Target
    training: bool
    spec: ModelSpec
    module: nn.Module
    inputs: tuple[Any, ...]
    compiled: dict[str, nn.Module] = field(default_factory=dict[str, nn.Module])

    def build(self, name: str) -> Step:
        """A step of one way, which compiles when it runs first."""
        run = run_by(name, self.module, self.target, training=self.training)
        if isinstance(run, daceml.DaceModule):
            self.compiled[name] = run
        casting = partial(self.target.casting, self.spec)
        return step_of(run, self.module, self.inputs, self.training, casting)

    def traffic(self) -> dict[str, Any]:
        """What the programs of daceml launch and move."""
        with torch.set_grad_enabled(self.training), self.target.casting(self.spec):
            return traffic_of(self.compiled[OURS], self.inputs)


def ways_of(case: Case, *, drawn_on: str | None = None) -> Ways:
    """The ways of a case, all from one module and one set of inputs.

    Args:
        drawn_on: where the numbers of the inputs are drawn; on the target where None.
    """
    subject, precision = subject_of(case), PRECISIONS[case.precision]
    target = target_of(emulated=case.emulated)
    module = in_precision(subject.spec, precision, target).train(subject.train_mode)
    inputs = target.example(subject.spec, precision, drawn_on=drawn_on)
    names = WAYS[case.kind]
    return Ways(
        names=tuple(name for name in names if name in ("eager", OURS)) if target.emulated else names,
        target=target,
        training=subject.training,
        spec=subject.spec,
        module=without_draws(module) if names == (OURS,) else module,
        inputs=pytree.tree_map_only(torch.Tensor, _requiring, inputs) if subject.training else inputs,
    )


def run_by(name: str, module: nn.Module, target: Target, *, training: bool) -> Callable[..., Any]:
    """The module as one way runs it.

    Raises:
        KeyError: there is no such way.
    """
    match name:
        case "eager":
            return module
        case "inductor":
            return torch.compile(module)
        case "max_autotune":
            # graphs are captured here as for all others
            return torch.compile(module, mode="max-autotune-no-cudagraphs")
        case "daceml":
            return target.compile(module, training=training)
        case _ if name == OURS + GRAPHS:
            return target.compile(module, training=training, cuda_graphs=True)
        case _:
            raise KeyError(name)


def step_of(
    run: Callable[..., Any],
    module: nn.Module,
    inputs: tuple[Any, ...],
    training: bool,
    casting: Casting = contextlib.nullcontext,
) -> Step:
    """A call without gradients, or forward and backward from a dense cotangent."""
    if training:
        return training_step(run, module, inputs, casting)

    def call() -> Any:
        with torch.no_grad(), casting():
            return run(*inputs)

    return call


def _requiring(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_() if tensor.is_floating_point() else tensor

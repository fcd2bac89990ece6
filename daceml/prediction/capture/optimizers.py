"""Optimizers by name, and what one does to parameters of given shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from daceml.errors import CaptureError
from daceml.prediction.capture.collector import Collector
from daceml.prediction.capture.layers import Layers
from daceml.prediction.capture.phases import Phases
from daceml.prediction.model_step import StepOperation

MakeOptimizer = Callable[[list[nn.Parameter]], torch.optim.Optimizer]
# closures, sparse gradients, or parameters of two dimensions only
_NOT_ALONE = ("Optimizer", "LBFGS", "SparseAdam", "Muon")


def capture_optimizer(
    shapes: Mapping[str, tuple[tuple[int, ...], str]], optimizer: str
) -> tuple[tuple[StepOperation, ...], int]:
    """What an optimizer does to parameters of these shapes and types, and the bytes of its states.

    Raises:
        CaptureError: there is no such optimizer.
    """
    making = optimizer_of(optimizer)
    with FakeTensorMode():
        parameters = [
            nn.Parameter(torch.empty(shape, dtype=getattr(torch, kind))) for shape, kind in shapes.values()
        ]
        collector = Collector(Layers({}))
        run = Phases(collector, ((), {}), train=True, loss=None, autocast=None)
        prepared = run.prepare(making, parameters)
        for one in parameters:
            one.grad = torch.empty_like(one)
        run.optimize(prepared)
        return tuple(collector.finished()), run.optimizer_bytes


def optimizer_of(
    told: str | MakeOptimizer,
) -> MakeOptimizer:
    """What makes an optimizer of parameters.

    Raises:
        CaptureError: torch has none of that name.
    """
    if not isinstance(told, str):
        return told
    known: dict[str, Any] = {
        name.lower(): kind
        for name, kind in vars(torch.optim).items()
        if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) and name not in _NOT_ALONE
    }
    if told.lower() not in known:
        raise CaptureError(
            f"no optimizer is called {told!r}",
            why=f"torch.optim has {', '.join(sorted(known))}",
            fix="name one of them, or give a function of the parameters that makes one",
        )
    return known[told.lower()]

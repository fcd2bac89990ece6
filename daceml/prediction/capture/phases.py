"""Forward, backward and the optimizer, each while a collector listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from daceml.errors import CaptureError
from daceml.prediction.capture.collector import Collector, bytes_of


class Phases:
    """The phases of a step, in which a collector listens."""

    def __init__(
        self,
        collector: Collector,
        given: tuple[tuple[Any, ...], dict[str, Any]],
        *,
        train: bool,
        loss: Callable[[Any], torch.Tensor] | None,
        autocast: torch.dtype | None,
        joined: bool = True,
    ) -> None:
        self.collector, self.given, self.train, self.loss = collector, given, train, loss
        self.autocast, self.joined = autocast, joined
        self.optimizer_bytes = 0

    def prepare(
        self, making: Callable[[list[nn.Parameter]], torch.optim.Optimizer], trained: list[nn.Parameter]
    ) -> torch.optim.Optimizer:
        """An optimizer that has taken a step, and so has its states, as in every step but the first."""
        made = making(trained)
        for group in made.param_groups:
            chosen = group.get("foreach", False) is not None or group.get("fused")
            if self.joined and not chosen:
                group["foreach"] = True  # as on CUDA devices, where torch takes it by itself
        for one in trained:
            one.grad = torch.empty_like(one)
        # neither do its gradients count nor what it does: memory is that of a step in the middle of a run
        self.collector.phase = "optimizer"
        before = len(self.collector.seen)
        with self.collector:
            made.step()
        del self.collector.seen[before:]
        self.collector.phase = None
        made.zero_grad(set_to_none=True)
        states = tensors_of([list(state.values()) for state in made.state.values()])
        self.optimizer_bytes = sum(map(bytes_of, states))
        return made

    def forward_backward(self, model: nn.Module, state: Mapping[str, torch.Tensor]) -> int:
        """Returns the bytes that are saved between the phases."""
        inputs = sum(one.untyped_storage().nbytes() for one in tensors_of(self.given))
        fixed = self.collector.live.now - inputs
        names = {f"model.{name}": one for name, one in state.items()}
        saved: list[int] = []

        def run(module: nn.Module) -> None:
            args, kwargs = self.given
            with torch.set_grad_enabled(self.train), self.collector:
                self.collector.phase = "forward"
                enabled = self.autocast is not None
                with torch.autocast("cpu", dtype=self.autocast or torch.bfloat16, enabled=enabled):
                    result = module(*args, **kwargs)
                    root = self._root(result) if self.train else None
                saved.append(max(self.collector.live.now - fixed, 0))
                if root is not None:
                    del result
                    self.collector.phase = "backward"
                    root.backward()
            self.collector.phase = None

        # inside of the call, so that what checkpoints compute again finds the same parameters
        torch.func.functional_call(_Around(model), names, (run,), tie_weights=True)
        return saved[0]

    def optimize(self, made: torch.optim.Optimizer) -> None:
        self.collector.phase = "optimizer"
        with self.collector:
            made.step()
        self.collector.phase = None

    def _root(self, result: Any) -> torch.Tensor:
        if self.loss is not None:
            return self.loss(result)
        told = getattr(result, "loss", None)
        if isinstance(told, torch.Tensor):
            return told
        roots = [one for one in tensors_of(result) if one.requires_grad]
        if not roots:
            raise CaptureError(
                "the model has no backward phase",
                why="no tensor that it returns has a gradient",
                fix="ask for inference, or return a tensor that depends on a parameter",
            )
        first, *others = (one.sum() for one in roots)
        return sum(others, start=first)


class _Around(nn.Module):
    """Runs whatever is to be done while a module has other parameters."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, run: Callable[[nn.Module], None]) -> None:
        run(self.model)


def tensors_of(result: Any) -> list[torch.Tensor]:
    """All that lie in nested results, in order."""
    return [one for one in pytree.tree_leaves(result) if isinstance(one, torch.Tensor)]

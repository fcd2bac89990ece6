"""Gradients of a model: how large each is, and in which order they become ready in a backward pass."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass(kw_only=True)
class ReadyOrder:
    """In which order parameters got their gradients.

    Attributes:
        latest: parameters of the last step that had any, the first one first.
    """

    latest: tuple[nn.Parameter, ...] = ()
    _now: dict[nn.Parameter, None] = field(default_factory=dict)  # pyright: ignore[reportUnknownVariableType]

    def ready(self, parameter: torch.Tensor) -> None:
        """A gradient is complete; where gradients are accumulated, the last time counts."""
        assert isinstance(parameter, nn.Parameter)
        self._now.pop(parameter, None)
        self._now[parameter] = None

    def step(self) -> None:
        """A step has ended."""
        if self._now:
            self.latest = tuple(self._now)
        self._now.clear()


@contextmanager
def gradients_watched(model: nn.Module, order: ReadyOrder) -> Generator[None]:
    """Let `order` see every gradient of the model while this lasts."""
    handles: list[Any] = []
    try:
        wanted = (p for p in model.parameters() if p.requires_grad and p.is_leaf)
        handles.extend(parameter.register_post_accumulate_grad_hook(order.ready) for parameter in wanted)
        yield
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True, kw_only=True)
class GradientRecord:
    """The gradient of one parameter.

    Attributes:
        name: of the parameter, as in the model's state_dict.
        layer: the module that it belongs to.
        size_bytes: of the gradient, which has the parameter's shape and element type.
        dtype: such as "float32".
        ready: place in the order in which gradients became ready, from 0; None where none was seen.
    """

    name: str
    layer: str
    size_bytes: int
    dtype: str
    ready: int | None

    def to_json(self) -> dict[str, Any]:
        """Plain values for json.dumps."""
        return asdict(self)


def gradient_records(model: nn.Module, ready: Sequence[nn.Parameter] = ()) -> tuple[GradientRecord, ...]:
    """One record for each parameter that requires a gradient, in the order of registration; pure.

    Args:
        ready: parameters in the order in which their gradients became ready.
    """
    places = {parameter: place for place, parameter in enumerate(ready)}
    return tuple(
        GradientRecord(
            name=name,
            layer=name.rpartition(".")[0] or type(model).__name__,
            size_bytes=parameter.numel() * parameter.element_size(),
            dtype=str(parameter.dtype).removeprefix("torch."),
            ready=places.get(parameter),
        )
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    )

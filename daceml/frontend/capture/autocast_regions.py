"""What forward computes under `no_grad` inside an autocast region.

torch.export keeps regions of both kinds, but not one without gradients inside one of autocast: its values
would seem to have gradients. Each of them is marked as it is made, instead.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from daceml.frontend.capture.call_device import autocast_types
from daceml.frontend.capture.exportable import RunsEagerlyError
from daceml.frontend.capture.gradients.gradient_stops import stop_gradient


@contextmanager
def marked_in_autocast() -> Generator[None]:
    """Trace a forward pass within the block, which one thread runs.

    Raises:
        RunsEagerlyError: a value that has a gradient is changed where none is followed.
    """
    thread, kind = threading.get_ident(), torch.autocast
    enter, leave = kind.__enter__, kind.__exit__
    marks = _Marks(sum(dtype is not None for dtype in autocast_types()))

    def entered(self: Any) -> Any:
        marks.depth += threading.get_ident() == thread
        return enter(self)

    def left(self: Any, exc_type: Any, exc_val: Any, exc_tb: Any) -> Any:
        marks.depth -= threading.get_ident() == thread
        return leave(self, exc_type, exc_val, exc_tb)

    try:
        kind.__enter__, kind.__exit__ = entered, left
        with marks:
            yield
    finally:
        kind.__enter__, kind.__exit__ = enter, leave


class _Marks(TorchFunctionMode):
    """Ends the gradient of every value that is made without one.

    Args:
        depth: in how many regions of autocast the block is.
    """

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.depth = depth

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.is_grad_enabled() or not self.depth:
            return func(*args, **(kwargs or {}))
        given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        versions = [x._version for x in given]
        result = func(*args, **(kwargs or {}))
        for tensor, version in zip(given, versions, strict=True):
            if tensor._version != version and tensor.requires_grad:
                raise RunsEagerlyError("forward changes a value with a gradient in place under no_grad")
        own = {id(x) for x in given}
        places = {_place(x) for x in given}

        def ended(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not value.is_floating_point() or id(value) in own:
                return value
            return value.detach() if _place(value) in places else stop_gradient()(value)

        return pytree.tree_map(ended, result)


def _place(tensor: torch.Tensor) -> int:
    """What tells whose memory a tensor is; fake ones have no address."""
    return tensor.untyped_storage()._cdata  # pyright: ignore[reportPrivateUsage]

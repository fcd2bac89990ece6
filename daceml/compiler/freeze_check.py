"""What `freeze=True` cannot be true of: a module that trains, or of which gradients are wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from daceml.errors import ConfigurationError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from daceml.compiler.guards import Modes


def check_frozen(module: nn.Module, tensors: Sequence[torch.Tensor], modes: Modes, *, backward: bool) -> None:
    """Refuse what would change the weights of a frozen module, or ask how they should change.

    Args:
        tensors: of the call's arguments.
        backward: whether gradients are wanted where they are enabled.
    Raises:
        ConfigurationError: a part of the module is in training mode, or gradients are enabled.
    """
    name = type(module).__name__
    training = [path or "the module itself" for path, part in module.named_modules() if part.training]
    if training:
        raise ConfigurationError(
            f"{name} is frozen and in training mode",
            why=f"freeze=True says that weights do not change any more; training: {', '.join(training[:3])}",
            fix="call module.eval() first, or compile it without freeze",
        )
    wanting = [t for t in (*tensors, *module.parameters()) if t.requires_grad]
    if backward and modes.grad_enabled and wanting:
        raise ConfigurationError(
            f"{name} is frozen and was called with gradients enabled",
            why=f"{len(wanting)} of its inputs and parameters require a gradient",
            fix="call it under torch.no_grad(), compile it with backward=False, or without freeze",
        )

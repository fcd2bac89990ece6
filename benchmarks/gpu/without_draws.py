"""Networks in training mode without random masks.

Kernels of a device draw in an order of their own, some within attention, so that no mask of one run can be
given to another one.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules.dropout import _DropoutNd  # pyright: ignore[reportPrivateUsage]


def without_draws(module: nn.Module) -> nn.Module:
    """Set every probability of dropout in a network to 0, in place."""
    for child in module.modules():
        if isinstance(child, _DropoutNd):
            child.p = 0.0
        # efficientnet_pytorch drops whole residual branches, at a rate that it keeps among its settings
        settings: Any = getattr(child, "_global_params", None)
        if settings is not None and hasattr(settings, "drop_connect_rate"):
            child._global_params = settings._replace(drop_connect_rate=0.0)
    return module

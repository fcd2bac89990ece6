"""The sizes of a traced call."""

from __future__ import annotations

from typing import Any

import torch


def hint(number: Any) -> Any:
    """What a symbolic number was in the call that was traced; other values as they are."""
    return number.node.hint if isinstance(number, torch.SymInt | torch.SymFloat | torch.SymBool) else number

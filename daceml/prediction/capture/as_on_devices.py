"""What torch does otherwise on a device than on a processor, whose calls a capture sees."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_RECURRENT = "recurrent layers are counted step by step; a library that joins the steps is faster"
_ATTENTION = "dropout inside attention is left out: fused kernels do it on the way"


class AsOnDevices(TorchFunctionMode):
    """What devices do in one kernel and a processor step by step, as one call."""

    def __init__(self, notes: dict[str, None]) -> None:
        super().__init__()
        self._notes = notes

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is nn.functional.dropout:
            told = dict(zip(("p", "training"), args[1:3], strict=False)) | kwargs
            if told.get("training", True) and told.get("p", 0.5) > 0:
                given = kwargs["input"] if "input" in kwargs else args[0]
                return torch.native_dropout(given, told.get("p", 0.5), True)[0]
        elif func is nn.functional.scaled_dot_product_attention:
            # a processor's fused attention takes no dropout: it would become its formula
            if kwargs.get("dropout_p") or (len(args) > 4 and args[4]):
                self._notes[_ATTENTION] = None
            args = (*args[:4], 0.0, *args[5:]) if len(args) > 4 else args
            kwargs = {name: value for name, value in kwargs.items() if name != "dropout_p"}
        elif func in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu):
            self._notes[_RECURRENT] = None
        return func(*args, **kwargs)


@contextmanager
def recurrent_layers_as_formulas() -> Generator[None]:
    """Without mkldnn's recurrent layer: one call that no other device has."""
    (before, *_) = torch.backends.mkldnn.set_flags(_enabled=False)
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(_enabled=before)

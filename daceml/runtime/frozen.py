"""Weights that do not change any more, put into the order of a vendor's kernel when a program is bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch

from daceml.runtime.manifest import PreparedRecord

Numbers = tuple[tuple[int, ...], ...]


def prepared_weights(
    records: Iterable[PreparedRecord], state: Mapping[str, torch.Tensor]
) -> list[torch.Tensor]:
    """The packed weights of a program, as the module's weights are now.

    Args:
        state: state_dict key -> tensor.
    """
    with torch.no_grad():
        return [_FUNCTIONS[r.function](state[r.key].detach(), r.numbers) for r in records]


def _convolution(weight: torch.Tensor, numbers: Numbers) -> torch.Tensor:
    """oneDNN's order for a convolution: pads, strides, dilations, (group,), sizes of the input."""
    pads, strides, dilations, (group,), sizes = numbers
    return torch.ops.mkldnn._reorder_convolution_weight(weight, pads, strides, dilations, group, sizes)


def _product(weight: torch.Tensor, numbers: Numbers) -> torch.Tensor:
    """MKL's order for the weight of a linear layer: (rows,)."""
    ((rows,),) = numbers
    return torch.ops.mkl._mkl_reorder_linear_weight(weight, rows)


_FUNCTIONS: dict[str, Callable[[torch.Tensor, Numbers], torch.Tensor]] = {
    "convolution": _convolution,
    "product": _product,
}

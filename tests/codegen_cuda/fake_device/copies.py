"""`copy_` between the host and the devices, and from one device to another."""

from __future__ import annotations

import torch

from tests.codegen_cuda.fake_device.memory import place_of
from tests.codegen_cuda.fake_device.streams import enqueue


def copy_(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """The stand-in for `aten::copy_` where a tensor lies on a device."""
    if target is source:
        return target
    if target.is_cuda and source.is_cuda and target.device != source.device:
        return _between_devices(target, source)
    device = (target if target.is_cuda else source).device.index
    waits = target.is_cuda != source.is_cuda and not non_blocking
    to = place_of(target) if target.is_cuda else None
    where = place_of(source) if source.is_cuda else None
    # the host may change what it gives, unless it has pinned it and promised not to
    given = source if source.is_cuda or (non_blocking and source.is_pinned()) else source.detach().clone()

    def run() -> None:
        with torch.inference_mode(False), torch.no_grad():
            goal = target if to is None else to.tensor()
            goal.copy_((given if where is None else where.tensor()).expand(goal.shape))

    enqueue(device, "aten::copy_", run)
    if waits:
        torch.cuda.current_stream(device).synchronize()
    return target


def _between_devices(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """In the stream of the source, as torch does it; both streams wait for each other."""
    here, there = torch.cuda.current_stream(source.device), torch.cuda.current_stream(target.device)
    here.wait_stream(there)
    to, where = place_of(target), place_of(source)

    def run() -> None:
        with torch.inference_mode(False), torch.no_grad():
            to.tensor().copy_(where.tensor())

    enqueue(source.device.index, "aten::copy_ to another device", run)
    there.wait_stream(here)
    return target

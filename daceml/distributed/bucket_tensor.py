"""The tensor of a bucket: gradients one after the other in row-major order, then a number for each.

That number is 1 where this rank has the gradient, so their sum over the ranks tells how many have it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from daceml.distributed.collectives.array_memory import tensor_at
from daceml.runtime.records.gradients import BucketRecord

# Arrays of programs that are seen again at the next step: their addresses mostly stay
_SEEN = 4096


class BucketTensor:
    """Memory that collectives work on, and a view of it for each parameter.

    Args:
        parameters: key -> parameter, at least of those in the bucket.
    """

    def __init__(self, record: BucketRecord, parameters: Mapping[str, torch.Tensor]) -> None:
        shapes = {key: parameters[key].shape for key in record.parameters}
        like = parameters[record.parameters[0]]
        sizes = [math.prod(shape) for shape in shapes.values()]
        self.tensor = torch.empty(sum(sizes) + len(sizes), dtype=like.dtype, device=like.device)
        *parts, self.owners = self.tensor.split([*sizes, len(sizes)])
        self.views = {key: part.view(shapes[key]) for key, part in zip(shapes, parts, strict=True)}
        self._seen: dict[tuple[int, str, tuple[int, ...]], torch.Tensor] = {}

    def take(self, record: BucketRecord, addresses: Sequence[int]) -> None:
        """Copy the gradients of a program's arrays; those that it does not have are zero."""
        for key in set(record.parameters).difference(record.present):
            self.views[key].zero_()
        if record.present:
            views = [self.views[key] for key in record.present]
            torch._foreach_copy_(views, self._arrays(record, addresses))  # pyright: ignore
        self.owners.copy_(torch.tensor([float(key in record.present) for key in record.parameters]))

    def give(self, record: BucketRecord, addresses: Sequence[int]) -> None:
        """Copy what belongs to a program's arrays into them."""
        if record.present:
            views = [self.views[key] for key in record.present]
            torch._foreach_copy_(self._arrays(record, addresses), views)  # pyright: ignore

    def own(self, key: str) -> None:
        """This rank has the gradient of a parameter after all."""
        self.owners[list(self.views).index(key)] = 1.0

    def scale(self, factor: float) -> None:
        """Multiply every gradient."""
        self.tensor[: -len(self.views)].mul_(factor)

    def _arrays(self, record: BucketRecord, addresses: Sequence[int]) -> list[torch.Tensor]:
        if len(self._seen) > _SEEN:
            self._seen.clear()
        found: list[torch.Tensor] = []
        for key, address, strides in zip(record.present, addresses, record.strides, strict=True):
            place = (address, key, strides)
            if place not in self._seen:
                like = self.views[key]
                self._seen[place] = tensor_at(address, like.shape, strides, like.dtype, like.device)
            found.append(self._seen[place])
        return found

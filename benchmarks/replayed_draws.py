"""Random masks of one run, used again in a run of another precision.

One seed gives one set of masks in float32, but in float64 some operators draw other numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Operators whose results are draws and nothing else, so that they can be taken from another run.
_DRAWS = frozenset(
    f"aten::{name}"
    for name in (
        "bernoulli", "bernoulli_", "exponential_", "normal_", "rand", "rand_like", "randint", "randint_like",
        "randn", "randn_like", "random_", "randperm", "uniform_",
    )
)  # fmt: skip


class RecordedDraws(TorchDispatchMode):
    """Within it, what operators draw is kept in `draws`: the operator and its result, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[tuple[str, torch.Tensor]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        before = torch.get_rng_state()
        result = func(*args, **(kwargs or {}))
        if func._schema.name in _DRAWS:
            self.draws.append((func._schema.name, result.clone()))
        elif not torch.equal(before, torch.get_rng_state()):
            # attention may draw, but does not without dropout
            raise NotImplementedError(f"{func} computes with what it draws, so its draws cannot be recorded")
        return result


class ReplayedDraws(TorchDispatchMode):
    """Within it, operators draw what others drew before, in any floating-point type.

    On leaving it, all of them have to be drawn.
    """

    def __init__(self, draws: list[tuple[str, torch.Tensor]]) -> None:
        super().__init__()
        self._draws: Iterator[tuple[str, torch.Tensor]] = iter(draws)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name not in _DRAWS:
            return result
        name, drawn = next(self._draws, ("nothing", None))
        if drawn is None or name != func._schema.name or drawn.shape != result.shape:
            shape = "" if drawn is None else f" of shape {tuple(drawn.shape)}"
            raise RuntimeError(
                f"{func._schema.name} of shape {tuple(result.shape)} is drawn where it was {name}{shape}"
            )
        return result.copy_(drawn)

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        super().__exit__(kind, *rest)
        if kind is None and (left := sum(1 for _ in self._draws)):
            raise RuntimeError(f"{left} recorded draws were not drawn again")

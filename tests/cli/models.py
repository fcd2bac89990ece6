"""Models that the tests of the command line name."""

from __future__ import annotations

import torch
from torch import nn


class Mish(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(nn.functional.softplus(x))


class Sized(nn.Module):
    """Cannot be made without arguments."""

    def __init__(self, size: int, *, bias: bool, slope: float = 0.1) -> None:
        super().__init__()


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        raise ValueError("no weights here")


class Wrong(nn.Module):
    """Another function while torch.export looks at it, as if the compiler were wrong."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (2.1 if torch.compiler.is_exporting() else 2.0)


instance = nn.Sequential(nn.Dropout(0.5), nn.ReLU())
number = 3


def make() -> nn.Module:
    return nn.Linear(4, 2)


def make_wide() -> nn.Module:
    return nn.Linear(32, 16)


def make_repeated() -> nn.Module:
    return nn.Sequential(*(nn.Linear(32, 32) for _ in range(4)))


def make_nothing() -> None:
    return None


class Embedded(nn.Module):
    """Looks up rows of a table of ten."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)
        with torch.no_grad():
            self.table.weight.copy_(torch.arange(40.0).reshape(10, 4))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.table(index)


class Talkative(nn.Module):
    """Prints while it is traced."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("forward is traced")  # noqa: T201
        return x + 1


class Particular(nn.Module):
    """Raises an exception of its own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.ndim != 2:
            raise ValueError(f"x has {x.ndim} dimensions instead of 2")
        return x + 1

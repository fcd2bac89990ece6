"""A network twice as deep compiles in twice the time: no pass looks at the whole state for each map."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import dace
import pytest
import torch
from torch import nn

import daceml

# They look at all nodes of a state.
_WHOLE = ("scope_dict", "scope_children", "data_nodes")
_OF_A_NETWORK = 100
"""Nodes of a state: those of a kernel are fewer."""


class _Residual(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
            for _ in range(depth)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = torch.tanh(x + block(x))
        return x.mean((2, 3))


def _counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often who asks for all nodes of a network's state."""
    found: Counter[str] = Counter()

    def counting(name: str, asked: Callable[..., Any]) -> Callable[..., Any]:
        def ask(state: Any, *args: Any, **named: Any) -> Any:
            if state.number_of_nodes() > _OF_A_NETWORK:
                caller: Any = sys._getframe(1)
                while "/daceml/" not in caller.f_code.co_filename:
                    caller = caller.f_back
                found[f"{name} by {caller.f_code.co_qualname}"] += 1
            return asked(state, *args, **named)

        return ask

    for name in _WHOLE:
        owner = next(kind for kind in dace.SDFGState.__mro__ if name in vars(kind))
        monkeypatch.setattr(owner, name, counting(name, vars(owner)[name]))
    return found


def test_nobody_looks_at_the_whole_state_for_each_map(monkeypatch: pytest.MonkeyPatch):
    found = _counted(monkeypatch)
    seen: list[Counter[str]] = []
    for depth in (8, 16):
        found.clear()
        daceml.compile(_Residual(depth))(torch.randn(2, 4, 6, 5)).sum().backward()
        seen.append(found.copy())
    shallow, deep = seen
    assert deep and {asked: times for asked, times in deep.items() if times > shallow[asked]} == {}

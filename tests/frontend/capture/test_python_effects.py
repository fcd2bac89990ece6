"""What forward remembers in global variables is no effect; what it counts there is one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import daceml

_BACKENDS: dict[Any, Any] = {}
_CALLS: dict[Any, Any] = {}
_TABLES: dict[Any, Any] = {}


class Backend:
    scale = 2.0


def scaled(x: torch.Tensor) -> torch.Tensor:
    if type(x) not in _BACKENDS:
        _BACKENDS[type(x)] = _BACKENDS.setdefault("torch", Backend())
    return x * _BACKENDS[type(x)].scale


def logged(x: torch.Tensor) -> torch.Tensor:
    _CALLS[len(_CALLS)] = Backend()
    return x * 2.0


def tabled(x: torch.Tensor) -> torch.Tensor:
    if x.shape not in _TABLES:
        _TABLES[x.shape] = SimpleNamespace(table=torch.ones(x.shape, dtype=x.dtype) * 2)
    return x * _TABLES[x.shape].table


class Calling(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scaled(x)


class Logging(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return logged(x)


class Tabled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return tabled(x)


@pytest.fixture(autouse=True)
def _empty():
    for table in (_BACKENDS, _CALLS, _TABLES):
        table.clear()


def test_a_backend_that_is_remembered_for_a_class_of_tensors_does_not_cut_the_model():
    compiled = daceml.compile(Calling())
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert len(compiled.session.variants) == 1  # a model that is cut has none of its own
    assert set(_BACKENDS) >= {"torch"}


def test_an_entry_for_every_call_is_an_effect():
    compiled = daceml.compile(Logging())
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert list(_CALLS) == [0, 1, 2]


def test_objects_with_tensors_are_not_left_behind_by_a_trace():
    compiled = daceml.compile(Tabled())
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 2.0))
    assert all(type(held.table) is torch.Tensor for held in _TABLES.values())

"""The stream that a call runs on."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from daceml.module.arrays.array_streams import stream_of


class Torch:
    """torch's streams, written down."""

    def __init__(self) -> None:
        self.current: Any = "torch's own"

    def external(self, address: int, *, device: int) -> tuple[str, int, int]:
        return ("external", address, device)

    def default(self, device: int) -> tuple[str, int]:
        return ("default", device)

    @contextmanager
    def stream(self, stream: Any) -> Generator[None]:
        outer, self.current = self.current, stream
        yield
        self.current = outer


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Torch:
    fake = Torch()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "ExternalStream", fake.external)
    monkeypatch.setattr(torch.cuda, "default_stream", fake.default)
    monkeypatch.setattr(torch.cuda, "stream", fake.stream)
    return fake


def cupy_array(monkeypatch: pytest.MonkeyPatch, address: int, device: tuple[int, int] = (2, 1)) -> Any:
    """An array of a package named cupy whose current stream has an address."""
    package = ModuleType("cupy")
    package.cuda = SimpleNamespace(  # pyright: ignore[reportAttributeAccessIssue]
        get_current_stream=lambda index: SimpleNamespace(ptr=address + index)
    )
    monkeypatch.setitem(sys.modules, "cupy", package)
    kind = type("ndarray", (), {"__module__": "cupy", "__dlpack_device__": lambda self: device})
    return kind()


def during(values: list[Any], fake: Torch) -> Any:
    with stream_of(values):
        seen = fake.current
    assert fake.current == "torch's own"
    return seen


def test_cupy_arrays_run_on_cupys_current_stream_of_their_device(
    streams: Torch, monkeypatch: pytest.MonkeyPatch
):
    array = cupy_array(monkeypatch, 4096)
    assert during([2.0, array, array], streams) == ("external", 4097, 1)


def test_the_null_stream_is_torchs_default_stream(streams: Torch, monkeypatch: pytest.MonkeyPatch):
    for device, address in ((0, 0), (1, -1), (0, 1)):
        array = cupy_array(monkeypatch, address, (2, device))
        assert during([array], streams) == ("default", device)


def test_one_tensor_leaves_torchs_stream(streams: Torch, monkeypatch: pytest.MonkeyPatch):
    assert during([cupy_array(monkeypatch, 4096), torch.ones(2)], streams) == "torch's own"


def test_arrays_without_streams_leave_torchs_stream(streams: Torch, monkeypatch: pytest.MonkeyPatch):
    assert during([np.ones(2), 2.0], streams) == "torch's own"
    assert during([cupy_array(monkeypatch, 4096, (1, 0))], streams) == "torch's own"


def test_without_a_device_nobody_asks_for_streams(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with stream_of([cupy_array(monkeypatch, 4096)]) as entered:
        assert entered is None

"""Tests on the fake device; without it they are skipped, with the sentence that says what is missing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.codegen_cuda.fake_device import streams
from tests.codegen_cuda.fake_device.install import installed
from tests.codegen_cuda.fake_device.libraries import missing

HOW = "the fake device is not in this process: python -m tests.codegen_cuda.fake_device.run"


@pytest.fixture(autouse=True)
def fake_device() -> Iterator[None]:
    """A device that has refused nothing, before and after each test."""
    if not installed():
        pytest.skip(missing() or HOW)
    torch.cuda.synchronize()
    streams.mend()
    torch.manual_seed(0)
    yield
    torch.cuda.synchronize()
    assert streams.refusals() == 0, streams.last_refusal()


@pytest.fixture
def refusing(fake_device: None) -> Iterator[None]:
    """For a test that provokes refusals, which are forgotten behind it."""
    yield
    streams.mend()

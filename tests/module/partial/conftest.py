"""Dynamo starts afresh in each test."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()

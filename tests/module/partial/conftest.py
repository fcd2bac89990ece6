"""Dynamo starts afresh in each test, and operators without a translation lead to cuts."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _fresh(no_fallback: None):
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()

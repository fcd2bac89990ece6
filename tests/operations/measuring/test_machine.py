from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from daceml.operations.measuring.machine import environment


def test_threads_and_the_allocator_tell_processors_apart(monkeypatch: pytest.MonkeyPatch):
    here = environment()
    assert here == environment()
    assert f"threads={torch.get_num_threads()}" in here.fingerprint
    assert here.software["torch"] == torch.__version__
    monkeypatch.setenv("MALLOC_TOP_PAD_", "268435456")
    assert environment().fingerprint == f"{here.fingerprint} MALLOC_TOP_PAD_=268435456"


def test_a_device_is_what_its_driver_says():
    found = SimpleNamespace(
        name="Planted 1", major=9, minor=0, total_memory=80 << 30, multi_processor_count=132
    )
    there = environment("cuda:1", SimpleNamespace(get_device_properties=lambda device: found))
    assert there.device == "Planted 1"
    assert there.fingerprint == "capability=9.0 memory=85899345920 multiprocessors=132"
    assert {"cuda", "cudnn", "torch"} <= set(there.software)

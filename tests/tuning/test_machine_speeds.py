"""Speeds of this machine: what was measured beside other programs is not kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from daceml.toolchain.cache import Cache
from daceml.tuning import machine_speeds
from daceml.tuning.machine_speeds import Machine, this_machine
from tests.tuning.speeds import MACHINE


def test_speeds_that_others_disturbed_serve_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    measured: list[Machine] = []
    busy = True

    def measure(cache: Cache) -> Machine:
        measured.append(MACHINE)
        return MACHINE

    monkeypatch.setattr(machine_speeds, "measure", measure)
    monkeypatch.setattr(machine_speeds, "_disturbed", {})
    monkeypatch.setattr(machine_speeds, "disturbing", lambda share: busy)
    cache = Cache(tmp_path)
    assert this_machine(cache) == this_machine(cache) == MACHINE and len(measured) == 1
    machine_speeds._disturbed.clear()  # another process
    busy = False
    assert this_machine(cache) == this_machine(cache) == MACHINE and len(measured) == 2
    machine_speeds._disturbed.clear()
    assert this_machine(cache) == MACHINE and len(measured) == 2

"""The description of the machine that every result carries."""

from __future__ import annotations

import json

import pytest

from benchmarks import machine


def test_what_is_absent_is_none():
    assert machine.first_line(["no-such-program-here"]) is None
    assert machine.installed_version("no-such-package-here") is None


def test_the_description_fits_into_json():
    seen = machine.description()
    assert json.loads(json.dumps(seen)) == seen
    assert seen["cores"] >= 1
    assert "torch" in seen["packages"]
    assert seen["date"].endswith("+00:00")


def test_libraries_are_named_without_the_folders_of_a_machine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DACEML_NVCC", "/somewhere/bin/nvcc")
    assert machine.description()["environment"]["DACEML_NVCC"] == "nvcc"

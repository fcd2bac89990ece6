"""The versions that `daceml doctor` accepts are those that setup.py asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from daceml.cli.supported_versions import CMAKE, PYTHON, SUPPORTED, problem, release
from tests.support.golden import golden

SETUP = (Path(__file__).parents[2] / "setup.py").read_text(encoding="utf-8")


def specifier(oldest: str, too_new: str) -> str:
    if oldest == too_new:
        return f"=={oldest}"
    return f">={oldest}" + (f",<{too_new}" if too_new else "")


@pytest.mark.parametrize("name", [*SUPPORTED, "cmake"])
def test_ranges_are_those_of_setup(name: str):
    found = re.search(rf'"{name}([=<>][^"]*)"', SETUP)
    assert found is not None
    assert found[1] == specifier(*(SUPPORTED | {"cmake": CMAKE})[name])


def test_python_is_that_of_setup():
    assert f'python_requires="{specifier(*PYTHON)}"' in SETUP


@pytest.mark.parametrize(
    ("version", "supported"),
    [("2.13.0+cpu", ("2.11", "2.14")), ("9.9", ("1.20", "")), ("2.0.0b1", ("2.0.0b1", "2.0.0b1"))],
)
def test_versions_in_range(version: str, supported: tuple[str, str]):
    assert problem(version, supported) == ""


@pytest.mark.parametrize(
    ("version", "supported", "limit"),
    [
        ("2.10.1", ("2.11", "2.14"), "2.11"),
        ("2.14", ("2.11", "2.14"), "2.14"),
        ("2.14.0", ("2.11", "2.14"), "2.14"),
        ("2.0.0", ("2.0.0b1", "2.0.0b1"), "2.0.0b1"),
    ],
)
def test_versions_out_of_range(version: str, supported: tuple[str, str], limit: str):
    reason = problem(version, supported)
    assert reason == golden()
    assert limit in reason


def test_releases_are_compared_as_numbers():
    assert release("2.9") < release("2.11.0a1+cu130")

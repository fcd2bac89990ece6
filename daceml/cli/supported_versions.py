"""The versions that daceml supports; the same ranges as in setup.py, which a test compares."""

from __future__ import annotations

import re

# Package -> the oldest version, and the first that is too new; equal where one version is pinned.
SUPPORTED: dict[str, tuple[str, str]] = {
    "torch": ("2.11", "2.14"),
    "dace": ("2.0.0b1", "2.0.0b1"),
    "onnx": ("1.20", ""),
    "onnxruntime": ("1.24", ""),
}
CMAKE = ("3.27", "")
PYTHON = ("3.11", "3.14")


def problem(version: str, supported: tuple[str, str]) -> str:
    """Why a version is not supported; empty if it is."""
    oldest, too_new = supported
    if oldest == too_new:
        return "" if version == oldest else f"{oldest} is the only one that is supported"
    if release(version) < release(oldest):
        return f"{oldest} is the oldest that is supported"
    if too_new and release(version) >= release(too_new):
        return f"it has to be older than {too_new}"
    return ""


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version: "2.13.0+cpu" -> (2, 13, 0)."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found.group().split("."))) if found else ()

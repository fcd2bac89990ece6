"""One cache of compiled things for the whole run, never the user's own, and two threads on every machine."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

# Before any test imports daceml or torch, which read these once. A DACEML_CACHE that is set is kept, so that
# several runs can share one.
os.environ.setdefault("OMP_NUM_THREADS", "2")
# DaCe would read the whole Python stack for every node that a test adds: deep within pytest, 70 ms each.
os.environ.setdefault("DACE_compiler_lineinfo", "none")
if "DACEML_CACHE" not in os.environ:
    os.environ["DACEML_CACHE"] = tempfile.mkdtemp(prefix="daceml-tests-")
    atexit.register(shutil.rmtree, os.environ["DACEML_CACHE"], ignore_errors=True)

import pytest  # after the environment is set
from hypothesis import settings

from tests.support import golden

# No test is timed: a busy machine is no fault.
settings.register_profile("daceml", deadline=None)
settings.load_profile("daceml")


def pytest_addoption(parser: pytest.Parser) -> None:
    golden.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    golden.configure(config)

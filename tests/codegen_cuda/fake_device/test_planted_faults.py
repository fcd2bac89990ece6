"""Faults that only a device shows, planted in daceml: tests of this folder find each of them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUN = "import sys, pytest; sys.exit(pytest.main(['-q', '-x', '-p', 'no:cacheprovider', *sys.argv[1:]]))"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault, and the test that has to fail with it.

    Attributes:
        planted: Python that runs before the test; `FOLDER` is a folder of its own.
        test: file and name.
        said: part of what the test says.
        compiled: whether compiled code has the fault, so that nobody else may find it in a cache.
    """

    planted: str
    test: str
    said: str
    compiled: bool = False


FAULTS: dict[str, Fault] = {
    "kernels are launched on the default stream": Fault(
        planted="""
import daceml.codegen.build as build
text = build.driver_text
build.driver_text = lambda *a, **k: text(*a, **k).replace("(c->stream", "(nullptr")
""",
        test="test_networks.py::test_a_second_stream[late-mish]",
        said="is launched on another stream than torch's current one",
        compiled=True,
    ),
    "the launcher leaves the current device as it is": Fault(
        planted="""
import daceml.runtime.launcher as launcher
first, *others = launcher._CALLING
text = first.read_text().replace("const DeviceGuard guard(place);", "const DeviceGuard guard(Place{});")
(FOLDER / first.name).write_text(text)
launcher._CALLING = (FOLDER / first.name, *others)
""",
        test="test_networks.py::test_a_second_device[mish-calls]",
        said="lies in the memory of cuda:1, it runs on cuda:0",
        compiled=True,
    ),
    "graphs are captured on the current device": Fault(
        planted="""
from contextlib import nullcontext
import daceml.runtime.cuda_graphs as replays
replays._on_device_of = lambda inputs: nullcontext()
""",
        test="test_networks.py::test_a_second_device[mish-replays]",
        said="The CUDA Graph is empty",
    ),
    "a replay does not wait for the last one": Fault(
        planted="""
from daceml.runtime.cuda_graphs import Replays
Replays._follow = lambda self: None
""",
        test="test_calls.py::test_replays_from_two_streams",
        said="Tensor-likes are not close",
    ),
    "weights that have moved are not noticed": Fault(
        planted="""
from daceml.runtime import launcher
launcher.weight_addresses = lambda number: 0
""",
        test="test_networks.py::test_replays[late-mlp]",
        said="('gradient ",  # in the list of tensors, which source lines of a traceback do not have
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, tmp_path: Path):
    fault = FAULTS[name]
    environment = dict(os.environ)
    if fault.compiled:
        environment["DACEML_CACHE"] = str(tmp_path / "cache")
    code = f"from pathlib import Path\nFOLDER = Path({str(tmp_path)!r})\n{fault.planted}\n{RUN}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(HERE / fault.test)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1, said[-3000:]
    assert "1 failed" in said and fault.said in said, said[-3000:]

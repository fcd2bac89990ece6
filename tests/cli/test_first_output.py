"""What a user sees while a command or a first call works: output within 1 s, then at least every 5 s."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

FIRST_S = 1.0
EVERY_S = 5.0
LONG_S = 3.0

MODEL = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU())
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3))).softmax(-1)
"""
BEGINS = "the first call\n"
FIRST_CALL = """
import torch, daceml
from net import Net
module = daceml.compile(Net())
print("the first call", flush=True)
module(torch.ones(2, 3, 16, 16))
print("has ended", flush=True)
"""


def output_times_s(folder: Path, *arguments: str) -> list[tuple[float, str]]:
    """Run Python with empty caches; the lines of its output with seconds since the start, and the end."""
    began_s = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env=os.environ | {"DACEML_CACHE": str(folder / "cache"), "DACEML_LOG": "info"},
    )
    assert process.stdout is not None
    with process:
        seen = [(time.monotonic() - began_s, line) for line in process.stdout]
    assert process.returncode == 0, "".join(line for _, line in seen)
    return [*seen, (time.monotonic() - began_s, "end")]


def slowness(folder: Path) -> float:
    """How many times longer than alone a command takes, because other processes use the processors."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall_s = output_times_s(folder, "-m", "daceml", "--version")[-1][0]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return max(1.0, wall_s / (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "daceml", "compile", "net.py:Net", "-i", "2,3,16,16"),
        ("-m", "daceml", "explain", "net.py:Net", "-i", "2,3,16,16", "--train"),
        ("-m", "daceml", "measure", "net.py:Net", "-i", "2,3,16,16", "--budget", "8s"),
        ("-c", FIRST_CALL),
    ],
    ids=["compile", "explain", "measure", "a first call"],
)
def test_there_is_output_within_a_second_and_then_every_few_seconds(
    arguments: tuple[str, ...], tmp_path: Path
):
    (tmp_path / "net.py").write_text(MODEL)
    longer = slowness(tmp_path)
    seen = output_times_s(tmp_path, *arguments)
    began = next((place for place, (_, line) in enumerate(seen) if line == BEGINS), None)
    # a command ends with its process, a first call before the interpreter unloads what it has imported
    times_s = [0.0, *(at_s for at_s, _ in seen)] if began is None else [at_s for at_s, _ in seen[began:-1]]
    assert times_s[-1] - times_s[0] > LONG_S, "a case of this test takes long"
    waits_s = [after - before for before, after in pairwise(times_s)]
    assert waits_s[0] < FIRST_S * longer, seen
    assert max(waits_s) < EVERY_S * longer, seen

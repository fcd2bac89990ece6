"""All memory of a training step comes from torch's allocator: generated code allocates nothing itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Prints how many allocations of a page and more were made outside torch's allocator: by a step of training,
# and by a library that is known to make one.
PROGRAM = """
import ctypes, sys
import torch
from torch import nn
import daceml

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.query, self.key = nn.Linear(64, 64), nn.Linear(64, 64)
        self.scale, self.head = nn.LayerNorm(64), nn.Linear(64, 10)

    def forward(self, x):
        rows = torch.relu(self.norm(self.convolution(x))).flatten(2).transpose(1, 2)
        rows = rows.reshape(rows.shape[0], -1, 64)
        weights = torch.softmax(self.query(rows) @ self.key(rows).transpose(1, 2) / 8, -1)
        rows = self.scale(weights @ rows + torch.cumsum(rows, 1))
        return self.head(torch.nn.functional.gelu(rows)).mean(1)

module = Network().train()
labels, x = torch.randint(0, 10, (4,)), torch.randn(4, 3, 16, 16)
compiled = daceml.compile(module)
def train():
    nn.functional.cross_entropy(compiled(x), labels).backward()
train()
preloaded = ctypes.CDLL(sys.argv[1])
preloaded.allocations_watch(1)
train()
preloaded.allocations_watch(0)
print(preloaded.allocations_found())
known = ctypes.CDLL(sys.argv[2])
preloaded.allocations_watch(1)
known.allocate()
preloaded.allocations_watch(0)
print(preloaded.allocations_found())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a library is preloaded")
def test_generated_code_allocates_nothing_of_its_own(tmp_path: Path):
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc builds the library that counts")
    counting, known = tmp_path / "counting.so", tmp_path / "program.so"
    source = Path(__file__).with_name("allocations.c")
    flags = ["-shared", "-fPIC", "-O1"]
    subprocess.run([compiler, *flags, str(source), "-o", str(counting), "-ldl"], check=True)
    culprit = tmp_path / "known.c"
    text = "#include <stdlib.h>\nvoid* volatile kept;\nvoid allocate(void) { kept = malloc(8192); }\n"
    culprit.write_text(text)
    subprocess.run([compiler, *flags, "-fno-builtin", str(culprit), "-o", str(known)], check=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(counting), str(known)],
        env={**os.environ, "LD_PRELOAD": str(counting)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "1"]

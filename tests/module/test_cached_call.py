"""A process that finds its program in the cache loads nothing that only compiling needs."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys

import pytest

from daceml.config import config

CALL = """
import sys
import torch
import daceml
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.GELU())
x = torch.linspace(-1, 1, 6).reshape(2, 3)
compiled = daceml.compile(model)
compiled(x).sum().backward()
print([parameter.grad.norm().item() for parameter in model.parameters()])
print(*sorted({"dace", "onnx", "onnxscript", "onnx_ir", "onnxruntime"} & set(sys.modules)))
"""


@pytest.mark.parametrize("measure", ["0", "1"])
def test_a_second_process_calls_without_dace_and_onnx(measure: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DACEML_MEASURE", measure)
    config.cache_clear()
    first = io.StringIO()
    with contextlib.redirect_stdout(first):
        exec(CALL, {})
    second = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True, check=True)
    gradients, loaded = first.getvalue().splitlines()
    assert {"dace", "onnx"} <= set(loaded.split())
    assert second.stdout.splitlines() == [gradients, ""]
    monkeypatch.undo()
    config.cache_clear()

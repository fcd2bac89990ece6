"""A process that finds its program in the cache loads nothing that only compiling needs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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


def _said(measure: str) -> list[str]:
    environment = {**os.environ, "DACEML_MEASURE": measure}
    line = [sys.executable, "-c", CALL]
    return subprocess.run(
        line, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.mark.parametrize("measure", ["0", "1"])
def test_a_second_process_calls_without_dace_and_onnx(measure: str):
    # the first one compiles, unless an earlier run has filled the cache of the tests
    first, second = _said(measure), _said(measure)
    assert second == [first[0], ""]

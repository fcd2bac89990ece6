"""`explain` of a training step shows the backward pass, too."""

from __future__ import annotations

import re

import torch
from torch import nn

import daceml


def test_the_steps_of_the_backward_pass():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    x = torch.randn(4, 5)
    compiled = daceml.compile(net, recompute="budget", memory_budget_bytes=5_000_000)
    found = daceml.explain(compiled, x)
    assert len(found.backward_steps) >= 3
    assert sum("mm" in step.label for step in found.backward_steps) >= 3, "two weights and one operand"
    text = str(found)
    assert re.search(rf"backward.* {len(found.backward_steps)} ", text)
    assert re.search(r"budget.* 5\.00 MB", text)
    with torch.no_grad():
        forward = daceml.explain(compiled, x)
    assert forward.backward_steps == () and "backward" not in str(forward)
    assert found.to_json()["backward_steps"]

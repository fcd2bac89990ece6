"""Which ONNX nodes each step of a program computes, whatever the passes have made of them."""

from __future__ import annotations

import torch
from torch import nn

import daceml
from daceml.runtime.records.manifest import Manifest


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.norm(self.conv(x))).mean((2, 3)))


def made_of(manifest: Manifest) -> dict[str, set[str]]:
    """Operator -> modules, of all nodes that some step computes."""
    found: dict[str, set[str]] = {}
    for step in manifest.steps:
        for node in step.nodes:
            found.setdefault(node.operator, set()).add(node.module_path)
    return found


def test_fused_kernels_name_every_node_and_gradients_name_that_of_the_forward_pass():
    compiled = daceml.compile(Block())
    compiled(torch.randn(2, 3, 8, 8)).sum().backward()
    variant = compiled.session.latest
    assert variant.backward is not None
    forward, backward = variant.program.manifest, variant.backward.program.manifest

    nodes = made_of(forward)
    assert {op: nodes[op] for op in ("Conv", "Gemm", "Tanh", "ReduceMean")} == {
        "Conv": {"conv"},
        "Gemm": {"head"},
        "Tanh": {""},
        "ReduceMean": {""},
    }
    normalized = [step for step in forward.steps if "BatchNorm" in step.label]
    assert all("norm" in {node.module_path for node in step.nodes} for step in normalized)
    # each kernel computes something; only copies of state come from no node
    assert all(step.nodes for step in forward.steps if step.kind == "aten")
    assert [step.label for step in backward.steps if not step.nodes] == []
    gradients = {(n.operator, n.onnx_name) for step in backward.steps for n in step.nodes}
    tanh = next(n.onnx_name for step in forward.steps for n in step.nodes if n.operator == "Tanh")
    assert ("TanhGrad", f"{tanh}/gradient") in gradients


def test_nodes_are_read_back_as_they_were_written():
    compiled = daceml.compile(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), backward=False)
    compiled(torch.randn(2, 4))
    program = compiled.session.latest.program
    again = Manifest.load(program.stored.folder)
    assert [step.nodes for step in again.steps] == [step.nodes for step in program.manifest.steps]
    assert {type(node).__name__ for step in again.steps for node in step.nodes} == {"NodeOrigin"}

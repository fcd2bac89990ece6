"""The ONNX model of one network in training mode: valid, with every buffer that a training step changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from benchmarks.bars import Bar
from benchmarks.models import ModelSpec

if TYPE_CHECKING:
    import onnx

# A module, inputs, and the type of the autocast region, if any, to the ONNX model.
ExportFunction = Callable[[nn.Module, tuple[Any, ...], torch.dtype | None], "onnx.ModelProto"]


@dataclass(frozen=True, kw_only=True)
class ExportParity:
    """What was seen of one network's ONNX model.

    Attributes:
        model: its name.
        nodes: of the main graph.
        refusal: what the full checker says; empty where the model is valid.
        changed: buffers that a forward pass of eager in training mode changes.
        missing: those of them that are no output of the ONNX model.
    """

    model: str
    nodes: int
    refusal: str
    changed: tuple[str, ...]
    missing: tuple[str, ...]

    def bars(self) -> list[Bar]:
        what = f"{self.model}, training"
        return [
            Bar(
                name=f"{what}: refusals of the ONNX checker",
                figure=int(bool(self.refusal)),
                limit=0,
                note=self.refusal,
            ),
            Bar(
                name=f"{what}: changed buffers that the ONNX model lacks",
                figure=len(self.missing),
                limit=0,
                note=", ".join(self.missing[:3]) or f"n={len(self.changed)}",
            ),
        ]

    def row(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "nodes": self.nodes,
            "refusal": self.refusal,
            "changed_buffers": len(self.changed),
            "missing_buffers": list(self.missing),
        }

    def line(self) -> str:
        checked = "refused by the checker" if self.refusal else "valid"
        return (
            f"{checked}, {self.nodes} nodes, {len(self.changed)} changed buffers, {len(self.missing)} missing"
        )


def export(spec: ModelSpec, export_module: ExportFunction, *, seed: int = 0) -> ExportParity:
    """Export a network in training mode, check its ONNX model, and look for buffers that eager changes."""
    import onnx

    module, inputs = spec.module(seed).train(), spec.example(seed)
    changed = changed_buffers(spec, module, inputs)
    model = export_module(module, inputs, spec.autocast)
    try:
        onnx.checker.check_model(model, full_check=True)
        refusal = ""
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        refusal = str(error).splitlines()[0]
    outputs = {value.name for value in model.graph.output}
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    mutations: dict[str, str] = json.loads(metadata.get("daceml.buffer_mutations", "{}"))
    kept = {buffer for output, buffer in mutations.items() if output in outputs}
    return ExportParity(
        model=spec.name,
        nodes=len(model.graph.node),
        refusal=refusal,
        changed=tuple(changed),
        missing=tuple(name for name in changed if name not in kept),
    )


def changed_buffers(spec: ModelSpec, module: nn.Module, inputs: tuple[Any, ...]) -> list[str]:
    """Names of buffers that a forward pass of a copy changes; a backward pass would change none."""
    trained = copy.deepcopy(module)
    before = {name: buffer.clone() for name, buffer in trained.named_buffers()}
    with torch.no_grad(), torch.random.fork_rng(devices=[]), spec.casting():
        trained(*inputs)
    return [name for name, buffer in trained.named_buffers() if not torch.equal(buffer, before[name])]

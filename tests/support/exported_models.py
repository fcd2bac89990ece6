"""Export a module, run the model with onnx's reference implementation, compare with eager PyTorch."""

from __future__ import annotations

import copy
import json
from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn
from torch.utils import _pytree as pytree

from daceml.frontend.capture.traceable import traceable
from daceml.frontend.onnx_export.export import export_program, to_onnx

FLOAT32_TOLERANCE = 2e-5
"""Sums of some hundred float32 products in another order than torch's."""

RANDOM_OPERATORS = {
    "Dropout",
    "Bernoulli",
    "RandomUniform",
    "RandomUniformLike",
    "RandomNormal",
    "RandomNormalLike",
}


class Lambda(nn.Module):
    """A module of one function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def onnx_of(module: nn.Module, *args: Any, dynamic_shapes: Any = None) -> ir.Model:
    """The model of a module, checked in full."""
    with traceable(module):
        program = export_program(module, args, dynamic_shapes=dynamic_shapes)
    model = to_onnx(program)
    onnx.checker.check_model(ir.serde.serialize_model(model), full_check=True)
    return model


def run(model: ir.Model, *args: torch.Tensor) -> list[np.ndarray]:
    """What onnx's reference implementation computes."""
    feeds = {value.name: arg.detach().numpy() for value, arg in zip(model.graph.inputs, args, strict=True)}
    return ReferenceEvaluator(ir.serde.serialize_model(model)).run(None, feeds)  # type: ignore[return-value]


def operators(model: ir.Model) -> Counter[str]:
    """How many nodes of each operator there are, constants aside."""
    return Counter(node.op_type for node in model.graph if node.op_type != "Constant")


def agrees(
    module: nn.Module, *args: torch.Tensor, tolerance: float = FLOAT32_TOLERANCE, **options: Any
) -> ir.Model:
    """Export, compare outputs with eager PyTorch (values, shapes and types), and give the model."""
    model = onnx_of(module, *args, **options)
    expected = pytree.tree_leaves(copy.deepcopy(module)(*[arg.clone() for arg in args]))
    actual = run(model, *args)[: len(expected)]
    for got, want in zip(actual, expected, strict=True):
        _same(got, want, tolerance)
    return model


def mutations(model: ir.Model) -> dict[str, str]:
    """The outputs that are new values of buffers, and the buffers."""
    return json.loads(model.metadata_props["daceml.buffer_mutations"])


def trains(
    module: nn.Module,
    *args: torch.Tensor,
    calls: list[tuple[torch.Tensor, ...]] | None = None,
    tolerance: float = FLOAT32_TOLERANCE,
    dynamic_shapes: Any = None,
) -> ir.Model:
    """Export, and follow eager PyTorch over several calls: outputs, and every buffer after each.

    Args:
        args: the inputs of the export.
        calls: the inputs of the calls; without them, two with those of the export.
    """
    model = onnx_of(module, *args, dynamic_shapes=dynamic_shapes)
    follows(model, module, calls or [args, args], tolerance)
    return model


def follows(model: ir.Model, module: nn.Module, calls: list[tuple[Any, ...]], tolerance: float) -> None:
    """Compare a model, whose dropout is off, with eager PyTorch over several calls."""
    deterministic = without_dropout(model)
    names = [value.name or "" for value in model.graph.outputs]
    changed = mutations(model)
    assert (
        names[len(names) - len(changed) :]
        == list(changed)
        == [f"{buffer}::next" for buffer in changed.values()]
    )
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    for inputs in calls:
        expected = pytree.tree_leaves(module(*pytree.tree_map(torch.clone, inputs)))
        actual = run(deterministic, *pytree.tree_leaves(inputs))
        for got, want in zip(actual[: len(names) - len(changed)], expected, strict=True):
            _same(got, want, tolerance)
        buffers = dict(module.named_buffers())
        for name, got in zip(changed.values(), actual[len(names) - len(changed) :], strict=True):
            _same(got, buffers[name], tolerance, name)
            if name in deterministic.graph.initializers:
                deterministic.graph.initializers[name].const_value = ir.tensor(np.array(got), name=name)
    moved = {name for name, buffer in module.named_buffers() if not torch.equal(buffer, before[name])}
    assert moved <= set(changed.values())


def _same(got: Any, want: torch.Tensor, tolerance: float, name: str = "") -> None:
    assert (got.shape, str(got.dtype)) == (tuple(want.shape), str(want.dtype).removeprefix("torch.")), name
    values = want.detach()
    if values.dtype == torch.bfloat16:
        got, values = got.astype(np.float32), values.float()
    np.testing.assert_allclose(got, values.numpy(), rtol=tolerance, atol=tolerance, err_msg=name)


def without_dropout(model: ir.Model) -> ir.Model:
    """A copy whose Dropout nodes are in evaluation."""
    copied = ir.serde.deserialize_model(ir.serde.serialize_model(model))
    for node in list(copied.graph):
        if node.op_type == "Dropout":
            off = ir.node("Constant", [], {"value": ir.tensor(np.array(False))})
            copied.graph.insert_before(node, off)
            off.outputs[0].name = f"{node.name}_off"
            node.replace_input_with(2, off.outputs[0])
    return copied


def seeded(model: ir.Model, seed: int) -> ir.Model:
    """A copy whose random nodes draw the same at every run, each its own."""
    copied = ir.serde.deserialize_model(ir.serde.serialize_model(model))
    for position, node in enumerate(copied.graph):
        if node.op_type in RANDOM_OPERATORS:
            assert "seed" not in node.attributes, "the same numbers at every call"
            kind = ir.AttributeType.INT if node.op_type == "Dropout" else ir.AttributeType.FLOAT
            node.attributes["seed"] = ir.Attr("seed", kind, seed + position)
    return copied


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal numbers, the same for every call with this shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def whole(*shape: int) -> torch.Tensor:
    """Whole numbers from 0 to 3."""
    return torch.randint(0, 4, shape, generator=torch.Generator().manual_seed(sum(shape)))

"""ONNX models in training mode, from exporters that keep buffers and one that forgets them."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
import torch
from torch import nn

from benchmarks import parity
from benchmarks.models.reduced import REDUCED
from benchmarks.parity_export import changed_buffers, export
from tests.support.sampling import sampled


def forgetful(module: nn.Module, inputs: tuple[Any, ...], autocast: torch.dtype | None) -> onnx.ModelProto:
    model = parity.export_with_daceml(module, inputs, autocast)
    del model.metadata_props[:]
    return model


def invalid(module: nn.Module, inputs: tuple[Any, ...], autocast: torch.dtype | None) -> onnx.ModelProto:
    model = parity.export_with_daceml(module, inputs, autocast)
    next(node for node in model.graph.node if node.input).input[0] = "nobody"
    return model


@pytest.mark.parametrize("name", sampled(REDUCED, "mish", "mbconv", "bert_autocast", "dlrm"))
def test_a_replica_in_training_mode_keeps_every_changed_buffer(name: str):
    seen = export(REDUCED[name], parity.export_with_daceml)
    assert seen.refusal == ""
    assert seen.missing == ()
    norms = [m for m in REDUCED[name].module().modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(seen.changed) == 3 * len(norms)


def test_buffers_that_the_model_forgets_miss_a_bar():
    seen = export(REDUCED["mbconv"], forgetful)
    assert len(seen.missing) == 6
    assert [bar.met for bar in seen.bars()] == [True, False]
    assert seen.bars()[1].note == "_bn1.running_mean, _bn1.running_var, _bn1.num_batches_tracked"


def test_a_model_that_the_checker_refuses_misses_a_bar():
    seen = export(REDUCED["mbconv"], invalid)
    assert "nobody" in seen.refusal
    assert [bar.met for bar in seen.bars()] == [False, True]


def test_looking_for_changed_buffers_changes_none():
    spec = REDUCED["mbconv"]
    module = spec.module().train()
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    assert len(changed_buffers(spec, module, spec.example())) == 6
    assert all(torch.equal(buffer, before[name]) for name, buffer in module.named_buffers())

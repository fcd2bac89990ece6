"""Embeddings and bags of embeddings: sums, means and maxima, with offsets, weights and padding."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import CallError
from tests.support.exported_models import (
    agrees,
    follows,
    onnx_of,
    operators,
    tensor,
    whole,
)
from tests.support.golden import golden, raises

INDICES, OFFSETS = torch.tensor([1, 2, 3, 0, 5, 1, 1]), torch.tensor([0, 2, 2, 5])
BAGS: dict[str, dict[str, Any]] = {
    "": {},
    "with padding": {"padding_idx": 1},
    "with a last offset": {"include_last_offset": True},
    "with a last offset and padding": {"include_last_offset": True, "padding_idx": 1},
}


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", BAGS)
def test_bags_of_embeddings(mode: str, name: str):
    torch.manual_seed(0)
    module = nn.EmbeddingBag(6, 4, mode=mode, **BAGS[name])
    offsets = torch.tensor([0, 2, 2, 5, 7]) if "include_last_offset" in BAGS[name] else OFFSETS
    model = agrees(module, INDICES, offsets)
    assert not operators(model).keys() & {"Loop", "If", "SequenceEmpty", "ScatterND"}
    if "include_last_offset" not in BAGS[name]:
        agrees(module, INDICES.view(1, 7))
    for kind in (torch.int32, torch.int64):
        agrees(module, INDICES.to(kind), offsets.to(kind))


def test_bags_of_weighted_embeddings():
    torch.manual_seed(0)
    for padding in (None, 1):
        module = nn.EmbeddingBag(6, 4, mode="sum", padding_idx=padding).double()
        agrees(module, INDICES, OFFSETS, tensor(7, dtype=torch.float64))


def test_numbers_of_indices_and_bags_may_be_symbolic():
    torch.manual_seed(0)
    for mode in ("sum", "mean", "max"):
        module = nn.EmbeddingBag(6, 4, mode=mode)
        shapes = {"input": {0: torch.export.Dim("T", min=2)}, "offsets": {0: torch.export.Dim("B", min=2)}}
        model = onnx_of(module, INDICES, OFFSETS, dynamic_shapes=shapes)
        follows(model, module, [(INDICES, OFFSETS), (INDICES[:3], torch.tensor([0, 1, 3]))], 1e-6)


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_an_embedding_that_rescales_its_weight(layer: type[nn.Module]):
    torch.manual_seed(0)
    eager = layer(6, 4, max_norm=1.0)
    compiled = daceml.compile(copy.deepcopy(eager))
    for _ in range(2):
        x = whole(2, 3)
        close = torch.testing.assert_close
        close(compiled(x), eager(x))
        close(compiled.weight, eager.weight)


def test_sparse_gradients_and_padding_leave_the_forward_pass_as_it_is():
    model = agrees(nn.Embedding(6, 4, sparse=True, padding_idx=1, scale_grad_by_freq=True), whole(2, 3))
    assert operators(model) == {"Gather": 1}


@pytest.mark.parametrize("layer", [nn.Embedding, nn.EmbeddingBag])
def test_sparse_gradients_are_left_to_torch(layer: type[nn.Module], caplog: pytest.LogCaptureFixture):
    module = daceml.compile(layer(6, 4, sparse=True))
    module(whole(2, 3)).sum().backward()
    assert module.weight.grad.layout == torch.sparse_coo
    (message,) = caplog.messages
    assert layer.__name__ in message and "embedding" in message and message == golden()
    step = daceml.compile_step(module, lambda y: y.sum(), torch.optim.SGD(module.parameters(), lr=0.1))
    with raises(CallError, "sparse", "embedding", "daceml.compile"):
        step(whole(2, 3))
    caplog.clear()
    module.weight.requires_grad_(False)
    assert module(whole(2, 3)).shape and not caplog.text

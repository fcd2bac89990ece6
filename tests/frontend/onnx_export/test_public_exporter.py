"""The fallback through torch's public exporter: the same state, names, provenance and numbers.

Its operators may differ: it decomposes where the private path need not, and its version converter inlines the
functions of the domain "daceml" (an EmbeddingBagSum becomes a dozen standard operators).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from torch import nn

from daceml.config import config
from daceml.frontend.onnx_export import exporter_internals
from daceml.frontend.onnx_export.export import export_program, to_onnx
from tests.support.exported_models import Lambda, follows, operators, run, seeded, tensor
from tests.support.golden import golden, raises
from tests.support.sampling import sampled

N = torch.export.Dim("N", min=2)


@pytest.fixture
def public_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Call it to leave the private path for the rest of the test."""

    def switch() -> None:
        monkeypatch.setenv("DACEML_PUBLIC_EXPORTER", "1")
        config.cache_clear()
        assert exporter_internals.private_exporter() is None

    config.cache_clear()
    yield switch
    monkeypatch.undo()
    config.cache_clear()


class Convolution(nn.Module):
    """Convolution, batch norm that learns and one that is frozen, in-place activation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.learns, self.frozen = nn.BatchNorm2d(4), nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)

    def train(self, mode: bool = True) -> nn.Module:
        super().train(mode)
        self.frozen.eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(self.relu(self.learns(self.conv(x))))


class Tied(nn.Module):
    """Two layers of one weight, and a counter."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.register_buffer("calls", torch.tensor(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.b(self.a(x)) / self.calls


class Bags(nn.Module):
    """Sums, and maxima without padding."""

    def __init__(self) -> None:
        super().__init__()
        self.sums, self.most = (
            nn.EmbeddingBag(6, 4, mode="sum"),
            nn.EmbeddingBag(6, 4, mode="max", padding_idx=1),
        )

    def forward(self, indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.sums(indices, offsets) * self.most(indices, offsets)


X = tensor(3, 3, 6, 5)
NETWORKS: dict[
    str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...], Any, tuple[torch.Tensor, ...]]
] = {
    # name: (module, inputs, dynamic shapes, inputs of a call)
    "convolution": (Convolution, (X,), None, (X,)),
    "convolution, symbolic batch": (Convolution, (X,), {"x": {0: N}}, (tensor(5, 3, 6, 5),)),
    "transformer layer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.2, batch_first=True),
        (tensor(3, 4, 8),),
        None,
        (tensor(3, 4, 8),),
    ),
    "transformer layer, symbolic batch": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.2, batch_first=True),
        (tensor(3, 4, 8),),
        {"src": {0: N}},
        (tensor(5, 4, 8),),
    ),
    "bags": (
        Bags,
        (torch.tensor([1, 2, 3, 0]), torch.tensor([0, 1])),
        None,
        (torch.tensor([1, 5, 3, 1]), torch.tensor([0, 2])),
    ),
    "tied weights and a counter": (Tied, (tensor(3, 4),), None, (tensor(3, 4),)),
}

# what both paths translate into the same operators
SAME_OPERATORS = {"convolution", "transformer layer", "tied weights and a counter"}


def built(name: str) -> nn.Module:
    """A network of the table in training, the same at every call."""
    torch.manual_seed(0)
    return NETWORKS[name][0]().train()


@pytest.mark.parametrize("name", sampled(NETWORKS, *NETWORKS.keys() - {"transformer layer, symbolic batch"}))
def test_state_and_numbers_are_those_of_the_private_path(name: str, public_only: Callable[[], None]):
    _, args, dynamic_shapes, call = NETWORKS[name]
    program = export_program(built(name), args, dynamic_shapes=dynamic_shapes)
    private = to_onnx(program)
    public_only()
    public = to_onnx(program)
    onnx.checker.check_model(ir.serde.serialize_model(public), full_check=True)
    assert public.opset_imports[""] == private.opset_imports[""]
    assert public.metadata_props == private.metadata_props
    assert set(public.graph.initializers) == set(private.graph.initializers)
    assert [str(value.shape) for value in public.graph.inputs] == [
        str(value.shape) for value in private.graph.inputs
    ]
    assert mutated_names(public) == mutated_names(private)
    assert places(public) == places(private)
    if name in SAME_OPERATORS:
        assert operators(public) == operators(private)
    quiet = built(name)
    for layer in quiet.modules():
        # values that a Dropout keeps in training are scaled by 1 / (1 - p)
        if isinstance(layer, nn.Dropout | nn.MultiheadAttention):
            setattr(layer, "p" if isinstance(layer, nn.Dropout) else "dropout", 0.0)
    follows(public, quiet, [call, call], 2e-5)


def mutated_names(model: ir.Model) -> list[str | None]:
    """Names of the outputs that are new values of buffers."""
    return [value.name for value in model.graph.outputs if "::next" in str(value.name)]


def places(model: ir.Model) -> set[tuple[str, str]]:
    """Where operators with weights come from."""
    weighted = {"Conv", "Gemm", "BatchNormalization", "LayerNormalization"}
    return {
        (node.op_type, node.metadata_props["daceml.module"])
        for node in model.graph
        if node.op_type in weighted
    }


def test_dropout_of_channels_still_drops_channels(public_only: Callable[[], None]):
    public_only()
    x = torch.ones(50, 200, 2, 2)
    model = to_onnx(export_program(nn.Dropout2d(0.3).train(), (x,)))
    (y,) = run(seeded(model, 1), x)
    rows = y.reshape(-1, 4)
    # four standard deviations of a rate among 10,000 draws are 0.02
    assert (rows == rows[:, :1]).all() and abs((rows[:, 0] == 0).mean() - 0.3) < 0.02
    np.testing.assert_allclose(rows.max(), 1 / 0.7, rtol=1e-6)


def test_it_is_chosen_where_the_private_translation_is_missing(monkeypatch: pytest.MonkeyPatch):
    from torch.onnx._internal.exporter import _core

    monkeypatch.delattr(_core, "_exported_program_to_onnx_program")
    assert exporter_internals.private_exporter() is None


def test_refusals_are_the_same(public_only: Callable[[], None], no_fallback: None):
    from daceml.errors import ExportError

    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.randperm(x.shape[0])

    public_only()
    rows = torch.export.Dim("rows", min=2)
    with raises(ExportError, "aten.randperm.default", exact=False) as refusal:
        to_onnx(export_program(Lambda(forward), (tensor(4, 3),), dynamic_shapes=[{0: rows}]))
    line = inspect.getsourcelines(forward)[1] + 1
    assert refusal.value.where.startswith(f"test_public_exporter.py:{line}")
    assert refusal.value.why == golden()


def test_a_negative_zero_whose_sign_would_be_lost_is_refused(public_only: Callable[[], None]):
    from daceml.errors import ExportError

    public_only()
    with raises(ExportError, "aten.mul", "-0.0", "public_exporter", exact=False) as refusal:
        to_onnx(export_program(Lambda(lambda x: x + x * -0.0), (tensor(4, 3),)))
    assert (refusal.value.why, refusal.value.fix) == (golden(), golden())

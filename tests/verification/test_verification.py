"""`verify`: right modules pass, wrong ones do not, and nothing of the user's changes."""

from __future__ import annotations

import copy
import json

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import CallError, ConfigurationError, ExportError
from daceml.text_tables import wide_tables
from daceml.transformations import Rewrite
from daceml.verification.verification import verify
from tests.support.golden import golden, raises


class Scale(nn.Module):
    """x * factor; while torch.export looks at it, x * traced_factor: a compiler that is wrong."""

    def __init__(self, factor: float = 2.0, traced_factor: float = 2.0) -> None:
        super().__init__()
        self.factor, self.traced_factor = factor, traced_factor

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scaled": x * (self.traced_factor if torch.compiler.is_exporting() else self.factor)}


class Normalised(nn.Module):
    """Batch norm: in training a call changes its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


class Float32Only(nn.Module):
    """Multiplies by a matrix that stays float32."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(3, 3, dtype=torch.float32)


X = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))


def test_a_right_module_passes_on_every_seed():
    seen = verify(Scale(), X, seeds=2)
    assert seen.passed
    assert [tensor.name for tensor in seen.tensors] == ["seed0.output['scaled']", "seed1.output['scaled']"]
    assert (seen.name, seen.seeds, seen.depth) == ("Scale", 2, 1)


def test_a_wrong_module_fails_and_says_which_tensor():
    seen = verify(Scale(2.0, 2.01), X)
    assert not seen.passed
    (failure,) = seen.failures
    assert failure.name == "seed0.output['scaled']"
    assert failure.error == pytest.approx(0.005, rel=1e-3)  # 2.01 / 2 - 1
    assert str(seen) == golden()
    assert "FAIL" in str(seen) and "sqrt(1)" in str(seen)


def test_buffers_that_a_call_changes_are_compared():
    module = Normalised()
    before = copy.deepcopy(module.state_dict())
    seen = verify(module, X, seeds=2)
    assert seen.passed
    assert "seed1.buffer norm.running_mean" in [tensor.name for tensor in seen.tensors]
    after = module.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before), "copies run, not the module"


def test_buffers_that_stay_are_not_listed():
    assert [tensor.name for tensor in verify(Normalised().eval(), X).tensors] == ["seed0.output"]


def test_a_compiled_module_is_compared_with_what_it_was_made_of():
    compiled = daceml.compile(Normalised().eval(), backward=False)
    assert verify(compiled, X).passed


def test_integers_are_shuffled_between_seeds_so_that_they_stay_valid():
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(7, 4)

        def forward(self, index: torch.Tensor) -> torch.Tensor:
            return self.table(index)

    assert verify(Lookup(), torch.tensor([6, 0, 3]), seeds=3).passed


def test_the_result_can_be_written_as_json():
    document = json.loads(json.dumps(verify(Scale(2.0, 2.01), X).to_json(), allow_nan=False))
    assert document["passed"] is False
    assert document["tensors"][0]["passed"] is False


def test_a_module_that_cannot_run_in_float64_is_refused():
    with raises(CallError, "Float32Only", "float64", "expected", exact=False):
        verify(Float32Only(), X)
    assert torch.get_default_dtype() is torch.float32


def test_what_cannot_be_verified_is_refused():
    with raises(ConfigurationError, "verify", "nn.Module", "ONNXModel", "int"):
        verify(3)  # pyright: ignore[reportArgumentType]
    with raises(ConfigurationError, "verify", "0", "seeds=1"):
        verify(Scale(), X, seeds=0)


def test_where_eager_is_exact_there_is_no_ratio():
    report = verify(nn.Sequential(nn.Linear(6, 8), nn.Tanh()).double(), torch.randn(4, 6).double())
    with wide_tables():
        text = str(report)
    assert report.passed and "inf" not in text and " - " in text


class ReluForExp(Rewrite):
    """A mistake: Exp(x) -> Relu(x)."""

    def pattern(self, op, x):  # pyright: ignore[reportIncompatibleMethodOverride]
        return op.Exp(x)

    def rewrite(self, op, x):  # pyright: ignore[reportIncompatibleMethodOverride]
        return op.Relu(x)


class Exponential(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.exp() + 1


def test_hooks_are_verified_with_the_module():
    module = daceml.compile(Exponential())
    module.append_post_onnx_hook("mistake", ReluForExp())  # pyright: ignore[reportAttributeAccessIssue]
    seen = verify(module, torch.randn(4))
    assert not seen.passed and seen.diagnosis is not None
    assert seen.diagnosis.failure == golden() and "hooks" in seen.diagnosis.failure


class WrongGradient(nn.Module):
    """The same result while torch.export looks at it, and another gradient, as if a rule were wrong."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_exporting():
            return x * 2 + (x * 0.1).detach() - x * 0.1
        return x * 2.0


def test_gradients_are_compared_where_they_are_asked_for():
    module = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.LayerNorm(8), nn.GELU()).train()
    seen = verify(module, torch.randn(5, 6), gradients=True, seeds=2)
    assert seen.passed
    names = {tensor.name.removeprefix("seed1.") for tensor in seen.tensors}
    assert {"output", "gradient of input[0]", "gradient of parameter 0.weight"} <= names
    assert not any("gradient" in t.name for t in verify(module, torch.randn(5, 6)).tensors)
    assert all(p.grad is None for p in module.parameters())


def test_a_wrong_gradient_fails_alone():
    assert verify(WrongGradient(), X).passed
    seen = verify(WrongGradient(), X, gradients=True)
    assert [tensor.name for tensor in seen.failures] == ["seed0.gradient of input[0]"]
    assert seen.diagnosis is None
    (note,) = seen.notes
    assert "does not locate" in note and "kink" in note
    assert not verify(WrongGradient(), X).notes


def test_integers_frozen_and_unused_parameters_have_no_gradients():
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.unused = nn.Embedding(7, 3), nn.Parameter(torch.ones(2))
            self.scale = nn.Parameter(torch.ones(3), requires_grad=False)

        def forward(self, places: torch.Tensor) -> torch.Tensor:
            return self.table(places) * self.scale

    seen = verify(Lookup(), torch.tensor([1, 6, 1]), gradients=True)
    gradients = [t.name for t in seen.tensors if "gradient" in t.name]
    assert seen.passed and gradients == ["seed0.gradient of parameter table.weight"]


def test_gradients_that_there_are_not_are_refused():
    with raises(ConfigurationError, "Scale", "backward=False", "backward=True"):
        verify(daceml.compile(Scale(), backward=False), X, gradients=True)


def test_torchs_generator_goes_on_where_it_was():
    module = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3)).train()
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    verify(module, torch.ones(5, 6), gradients=True, seeds=2)
    assert torch.equal(torch.rand(2), expected)


def test_values_behind_dropout_are_compared_with_the_same_draws():
    module = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.3), nn.Linear(16, 4)).train()
    found = verify(module, torch.randn(8, 16), intermediate=True)
    assert found.diagnosis is not None and found.diagnosis.first is None
    assert found.passed


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x).relu()
        return self.second(2 * y if y.sum() > 0 else y)


def test_a_cut_module_is_verified_part_by_part():
    compiled = daceml.compile(Branching(), fullgraph=False)
    found = verify(compiled, torch.randn(4, 8), gradients=True, seeds=2)
    assert found.passed and len(found.tensors) == 12
    (note,) = found.notes
    assert "several programs" in note and "asks for the value" in note
    with pytest.raises(ExportError):
        verify(daceml.compile(Branching(), fullgraph=True), torch.randn(4, 8))

"""A compiler that is wrong on purpose is found out, down to the operator and the user's line."""

from __future__ import annotations

import dataclasses
import inspect
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import daceml
from daceml.onnx_ops import registry
from daceml.text_tables import WIDTH
from daceml.verification.verification import verify
from tests.support.golden import golden
from tests.support.onnx_files import save_sum

X = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))


class Block(nn.Module):
    """Its constant is another one every time, so that no program of an earlier run is found in the cache."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.shift = random.random()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.linear(x) + self.shift)
        y = torch.tanh(y)
        return torch.softmax(y * 2, 1)


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x).exp()


def line_of(function: Any, text: str) -> str:
    lines, start = inspect.getsourcelines(function)
    (offset,) = [i for i, line in enumerate(lines) if text in line]
    return f"{Path(__file__).name}:{start + offset}"


def break_operator(monkeypatch: pytest.MonkeyPatch, op_type: str, wrong: Any) -> None:
    """Make every implementation of an operator but the native one go, and that one wrong."""
    native = next(i for i in registry.implementations_of(op_type) if i.kind == "native")
    broken = dataclasses.replace(native, function=wrong, name="broken", rank=0)
    monkeypatch.setitem(registry._registered, ("", op_type), [broken])


@pytest.fixture
def _wrong_tanh(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(input: Any, output: Any) -> None:
        output[:] = np.tanh(input) * 1.001

    break_operator(monkeypatch, "Tanh", wrong)


@pytest.mark.usefixtures("_wrong_tanh")
def test_the_operator_that_is_wrong_is_named():
    seen = verify(Nested(), X)
    assert not seen.passed and seen.diagnosis is not None
    first = seen.diagnosis.first
    assert first is not None
    assert (first.origin.name, first.origin.operator, first.implementation) == (
        "tanh",
        "Tanh",
        "native:broken",
    )
    assert first.origin.operands == ("relu",)
    assert first.origin.module_path == "block"
    assert first.origin.source == line_of(Block.forward, "torch.tanh(y)")
    assert first.error.error == pytest.approx(1e-3, rel=0.01)
    assert seen.diagnosis.alone is not None and not seen.diagnosis.alone.passed
    names = [value.origin.name for value in seen.diagnosis.failures]
    assert names[0] == "tanh" and {"softmax", "exp"} <= set(names) and "relu" not in names
    sentence = seen.diagnosis.conclusion[0]
    facts = ("tanh", "Tanh", "block", first.origin.source, "native:broken")
    assert all(fact in sentence for fact in facts) and sentence in " ".join(str(seen).split())


@pytest.mark.usefixtures("_wrong_tanh")
def test_the_intermediate_values_can_fail_alone():
    class Hidden(nn.Module):
        """What is wrong is multiplied away."""

        def __init__(self) -> None:
            super().__init__()
            self.shift = random.random()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x + self.shift).floor() * 0 + x

    model = Hidden()
    assert verify(model, X).passed and verify(model, X).diagnosis is None
    seen = verify(model, X, intermediate=True)
    assert not seen.passed and not seen.failures and seen.diagnosis is not None
    assert seen.diagnosis.conclusion[-2] == golden()
    assert seen.diagnosis.conclusion[-2].strip() in " ".join(str(seen).split())


def test_an_operator_of_an_onnx_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    constant = random.random()

    def wrong(A: Any, B: Any, C: Any) -> None:
        C[:] = A + B + np.abs(A) * 0.001 * constant

    break_operator(monkeypatch, "Add", wrong)
    model = daceml.ONNXModel(save_sum(tmp_path, doc=str(constant)))
    seen = verify(model, torch.ones(4, 3), torch.tensor([0, 3, 1, 1]))
    assert seen.diagnosis is not None and seen.diagnosis.first is not None
    assert seen.diagnosis.first.origin.name == "y"
    assert seen.diagnosis.first.origin.operands == ("rows",)
    assert seen.diagnosis.first.implementation == "native:broken"


def test_everything_is_compared_where_it_is_asked_for():
    class Normalised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            first, second = self.norm(x).chunk(2, 1)
            values, places = torch.max(first.reshape(-1, 2) * 3, 1)
            return {"values": values, "places": places, "second": second}

    module = Normalised()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    seen = verify(module, X, intermediate=True)
    assert seen.passed and seen.diagnosis is not None
    names = {value.origin.name for value in seen.diagnosis.values}
    assert {"norm.running_mean::next", "norm.num_batches_tracked::next", "getitem", "mul"} <= names
    (conclusion,) = seen.diagnosis.conclusion
    assert seen.diagnosis.first is None and str(len(seen.diagnosis.values)) in conclusion
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_symbolic_sizes_and_integers():
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(7, 4)

        def forward(self, index: torch.Tensor) -> torch.Tensor:
            return self.table(index + 1).sum(1)

    compiled = daceml.compile(
        Lookup(), backward=False, dynamic_shapes={"index": {0: torch.export.Dim("batch", min=2)}}
    )
    seen = verify(compiled, torch.tensor([[0, 5], [3, 2], [1, 1]]), intermediate=True)
    assert seen.passed and seen.diagnosis is not None
    assert [value.origin.name for value in seen.diagnosis.values][:2] == ["add", "embedding"]


def test_an_export_that_differs_is_not_blamed_on_an_operator():
    class Wrong(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * (2.1 if torch.compiler.is_exporting() else 2.0)

    seen = verify(Wrong(), X)
    assert seen.diagnosis is not None and seen.diagnosis.first is None
    assert seen.diagnosis.conclusion == (golden(),)
    assert "torch.export" in seen.diagnosis.conclusion[0]


def test_a_look_that_fails_does_not_hide_the_verdict(monkeypatch: pytest.MonkeyPatch):
    from daceml.verification import graph_values

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no\nluck")

    monkeypatch.setattr(graph_values, "diagnose_module", fail)
    seen = verify(nn.ReLU(), X, intermediate=True)
    assert not seen.failures and not seen.passed
    assert seen.diagnosis is not None and seen.diagnosis.failure == "RuntimeError: no luck"
    assert seen.diagnosis.failure in str(seen)


def test_what_passes_only_because_eager_is_as_bad_is_said():
    class Cancelling(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return (x + 1e4) - 1e4, x * 2

    seen = verify(Cancelling(), X * 1e-3)
    assert seen.passed
    assert [tensor.name for tensor in seen.ill_conditioned] == ["seed0.output[0]"]
    (note,) = seen.notes
    assert all(fact in note for fact in ("1", "2", "seed0.output[0]", "float64"))
    assert seen.to_json()["ill_conditioned"] == ["seed0.output[0]"]
    assert note[:60] in str(seen) and max(map(len, str(seen).splitlines())) <= WIDTH


def test_inputs_that_forward_changes_are_compared():
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.mul_(2)
            return x + 1

    seen = verify(InPlace(), X.clone())
    assert seen.passed
    assert [tensor.name for tensor in seen.tensors] == ["seed0.output", "seed0.input[0]"]


def test_keyword_arguments():
    class Masked(nn.Module):
        def forward(self, x: torch.Tensor, *, mask: torch.Tensor) -> torch.Tensor:
            return torch.where(mask, x, x * 2)

    assert verify(Masked(), X, keywords={"mask": X > 0}, seeds=2).passed

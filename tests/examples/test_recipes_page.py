"""The scripts of docs/recipes.md do what the page says, with values and gradients of eager PyTorch."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import daceml
from tests.support.golden import golden

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"


def scripts() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture
def script(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """One of the scripts as a module of its own."""
    number: int = request.param
    name = f"recipes_page_{number}"
    file = tmp_path / f"{name}.py"
    file.write_text(scripts()[number])
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]


def same_gradients(compiled: Any, *inputs: torch.Tensor, times: float = 1.0) -> None:
    """Values and gradients are eager's, the parameters' so many times."""
    given = [x.detach().requires_grad_() for x in inputs]
    weights = list(compiled.parameters())
    seed = torch.randn_like(compiled.session.eager(*given))
    y, expected = compiled(*given), compiled.session.eager(*given)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-6)
    ours = torch.autograd.grad(y, [*given, *weights], seed)
    theirs = torch.autograd.grad(expected, [*given, *weights], seed)
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        torch.testing.assert_close(a, b * (times if number >= len(given) else 1.0), rtol=1e-4, atol=1e-5)


def applied(compiled: Any, *inputs: torch.Tensor) -> dict[str, int]:
    return daceml.explain(compiled, *inputs).applied


@pytest.mark.parametrize("script", [0], indirect=True)
def test_the_first_script(script: Any, capsys: pytest.CaptureFixture[str]):
    torch.testing.assert_close(script.y, torch.tanh(torch.relu(script.x)))
    assert script.again == script.recipe
    assert "fuse_subgraphs" not in [step.name for step in script.shorter]
    assert applied(script.model, script.x)["OneRelu"] == 1


@pytest.mark.parametrize("script", [1], indirect=True)
def test_a_layer_normalization_is_lifted(script: Any):
    x = torch.randn(5, 8)
    same_gradients(script.lifted, x)
    assert applied(script.lifted, x)["LiftNormalization"] == 1
    rewrite = script.LiftNormalization()
    other = daceml.compile(Columns(), backward=False, recipe=script.Recipe(rewrite))
    torch.testing.assert_close(other(x), other.session.eager(x))
    reasons = daceml.explain(other, x).refused
    (reason,) = [reason for reason in reasons if "LiftNormalization" in reason]
    assert reason.partition(": ")[2] == golden()  # before it: bytes and places


class Columns(nn.Module):
    """Normalises columns."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(0, keepdim=True)
        return centred / torch.sqrt((centred * centred).mean(0, keepdim=True) + 1e-5) * 2.0 + x[0]


@pytest.mark.parametrize("script", [2], indirect=True)
def test_padding_goes_into_a_convolution(script: Any):
    x = torch.randn(2, 3, 7, 6)
    same_gradients(script.padded, x)
    assert applied(script.padded, x)["PadConvFusion"] == 1
    other = daceml.compile(
        nn.Sequential(nn.ConstantPad2d(1, 3.0), nn.Conv2d(3, 4, 3)), backward=False,
        recipe=script.Recipe(script.PadConvFusion()),
    )  # fmt: skip
    torch.testing.assert_close(other(x), other.session.eager(x), rtol=1e-5, atol=1e-5)
    assert "PadConvFusion" not in applied(other, x), "it does not pad with zeros"


@pytest.mark.parametrize("script", [3], indirect=True)
def test_a_scale_goes_into_a_product(script: Any):
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    same_gradients(script.scores, a, b)
    assert applied(script.scores, a, b)["ScaleIntoGemm"] == 1
    batches = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
    same_gradients(script.scores, *batches)
    reasons = daceml.explain(script.scores, *batches).refused
    (reason,) = [reason for reason in reasons if "ScaleIntoGemm" in reason]
    assert reason.partition(": ")[2] == golden()  # before it: bytes and places


@pytest.mark.parametrize("script", [4], indirect=True)
def test_gradients_of_parameters_are_summed_over_workers(script: Any):
    x = torch.randn(4, 6)
    same_gradients(script.distributed, x, times=4.0)
    variant, _ = script.distributed.session.variant((x.requires_grad_(),), {})
    (level,) = [r for r in load(variant.backward.program) if r.level == "operators"]
    assert level.applied["distribute"] == 4
    labels = [step.label for step in variant.backward.program.manifest.steps]
    assert sum("AllReduce" in label for label in labels) == 4
    last = max(i for i, label in enumerate(labels) if "AllReduce" not in label)
    assert any("AllReduce" in label for label in labels[:last]), "they are not left to the end"


def load(program: Any) -> Any:
    from daceml.runtime.records.levels import load_levels

    return load_levels(program.stored.folder)


@pytest.mark.parametrize("script", [5], indirect=True)
def test_mish_is_one_kernel_in_each_pass(script: Any):
    x = torch.randn(40, 9)
    same_gradients(script.mish, x)
    variant, _ = script.mish.session.variant((x.requires_grad_(),), {})
    assert variant.backward.record.saved == (), "nothing but x is read again"
    for program in (variant.program, variant.backward.program):
        assert [step.kind for step in program.manifest.steps] == ["kernel"]


def test_every_script_is_one_that_a_test_runs():
    assert len(scripts()) == 7
    assert all(len(text.splitlines()) < 60 for text in scripts())


@pytest.mark.parametrize("script", [6], indirect=True)
def test_a_search_is_shown(script: Any, capsys: pytest.CaptureFixture[str]):
    expected = script.layers(script.batch).detach()
    torch.testing.assert_close(script.searched(script.batch), expected, rtol=1e-5, atol=1e-6)
    assert "search: " in str(daceml.explain(script.searched, script.batch))

"""What a library would not do is refused with its reason: effects besides results, what only Python does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import DeploymentError, SignatureError
from daceml.transformations.recipe import Recipe
from tests.support.golden import raises


class Doubling(nn.Module):
    """The smallest of modules, with what makes it not exportable put in by tests."""

    def __init__(self, effect: Callable[[Any, torch.Tensor], object] = lambda *_: None) -> None:
        super().__init__()
        self.scale, self.effect = nn.Parameter(torch.ones(3)), effect
        self.register_buffer("count", torch.zeros(()))
        self.kept: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.effect(self, x)
        return x * self.scale


def _assigns_shape(module: Any, x: torch.Tensor) -> None:
    module.last = x.shape


def _assigns_tensor(module: Any, x: torch.Tensor) -> None:
    module.mean = x.mean()


def _changes_input(module: Any, x: torch.Tensor) -> None:
    x.add_(1)


def _changes_parameter(module: Any, x: torch.Tensor) -> None:
    with torch.no_grad():
        module.scale.mul_(2)


def _changes_buffer(module: Any, x: torch.Tensor) -> None:
    module.count.add_(1)


def _changes_list(module: Any, x: torch.Tensor) -> None:
    module.kept.append(x.shape[0])


@pytest.mark.parametrize(
    ("effect", "named"),
    [
        (_assigns_shape, "Doubling.last"),
        (_assigns_tensor, "Doubling.mean"),
        (_changes_input, "x.clone()"),
        (_changes_parameter, "scale"),
        (_changes_buffer, "count"),
        (_changes_list, "Python"),
    ],
)
def test_effects_are_refused(effect: Callable[..., None], named: str, tmp_path: Path):
    with raises(DeploymentError, named) as raised:
        daceml.export(Doubling(effect).eval(), torch.randn(2, 3), to=tmp_path / "none", libtorch=True)
    assert raised.value.why and raised.value.fix
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("inputs", "named", "why"),
    [
        ((), {}, "missing a required argument: 'x'"),
        ((1, 2), {}, "too many positional"),
        ((), {"z": 1}, "'x'"),
    ],
)
def test_arguments_that_forward_does_not_take(
    inputs: tuple[int, ...], named: dict[str, int], why: str, tmp_path: Path
):
    model = Doubling().eval()
    with raises(SignatureError, "Doubling cannot be called", why):
        daceml.export(model, *inputs, to=tmp_path / "none", **named)
    with raises(SignatureError, "Doubling cannot be called", why):
        daceml.export(daceml.compile(model, backward=False), *inputs, to=tmp_path / "none", **named)
    assert list(tmp_path.iterdir()) == []


def test_a_hook_of_the_module_is_refused_and_one_of_a_submodule(tmp_path: Path):
    model, x = Doubling().eval(), torch.randn(2, 3)
    handle = model.register_forward_hook(lambda *_: None)
    with raises(DeploymentError, "hooks", "<lambda>"):
        daceml.export(model, x, to=tmp_path / "none")
    handle.remove()
    seen: list[torch.Tensor] = []
    handle = model.register_forward_hook(lambda module, args, result: seen.append(result))
    with raises(DeploymentError, "seen of hook <lambda> of 0"):
        daceml.export(nn.Sequential(model).eval(), x, to=tmp_path / "none")
    assert not seen
    handle.remove()
    handle = model.register_forward_pre_hook(lambda *_: None)
    with raises(DeploymentError, "hooks", "<lambda>"):
        daceml.export(model, x, to=tmp_path / "none")
    handle.remove()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with raises(DeploymentError, "torch", "hooks"):
            daceml.export(model, x, to=tmp_path / "none")
    finally:
        handle.remove()


@pytest.mark.parametrize("options", [{"recipe": Recipe()}, {"auto_optimize": False}, {"dynamic": True}])
def test_options_of_a_compiled_module_are_not_dropped(options: dict[str, Any], tmp_path: Path):
    compiled = daceml.dace_module(Doubling().eval(), **options)
    with raises(DeploymentError, *options, "compiled.session.eager"):
        daceml.export(compiled, torch.randn(2, 3), to=tmp_path / "none")


def test_hooks_of_a_compilation_are_not_dropped(tmp_path: Path):
    compiled: Any = daceml.dace_module(Doubling().eval())
    compiled.append_post_onnx_hook("mine", lambda module: None)
    with raises(DeploymentError, "hooks", "mine"):
        daceml.export(compiled, torch.randn(2, 3), to=tmp_path / "none")

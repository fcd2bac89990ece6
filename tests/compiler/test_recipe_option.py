"""`recipe=` takes the place of the standard recipe: forward and backward, in the cache and in explain."""

from __future__ import annotations

import copy
import logging
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import daceml
from daceml.compiler.keys.recipe_key import recipe_key
from daceml.errors import ConfigurationError, PassError
from daceml.transformations import Recipe, Step, standard_recipe
from tests.compiler.stages.recipe_passes import OneRelu, break_network, name_loops
from tests.support.golden import golden, raises


class Reluctant(nn.Module):
    """Two relus in front of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(torch.relu(torch.relu(x))))


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(4, 6)


MINE = standard_recipe().before("fuse_maps", Step(name_loops)) + Recipe(OneRelu())


def labels(found: Any) -> set[str]:
    return {step.label for step in found.steps if step.kind == "kernel"}


def test_passes_run_at_both_levels_and_are_shown(x: torch.Tensor):
    module = daceml.compile(Reluctant(), backward=False, recipe=MINE)
    torch.testing.assert_close(module(x), module.session.eager(x))
    found = daceml.explain(module, x)
    assert found.applied["OneRelu"] == 1 and found.applied["name_loops"] == 3
    both = {"named", "named_named"}  # the loop of tanh has taken in the one that adds a bias
    assert labels(found) == both
    text = " ".join(str(found).split())
    assert (
        "local: name_loops x3, fuse_maps x1 without effect: eliminate_copies, sweep_rows_once, fuse_subgraphs"
        in text
    )
    assert "OneRelu" in text
    assert {n.map.label for n in module.sdfg.node(0).nodes() if hasattr(n, "map")} == both


def test_forward_and_backward_pass_get_it(x: torch.Tensor):
    module = daceml.compile(Reluctant(), recipe=MINE)
    x.requires_grad_()
    ours = torch.autograd.grad(module(x).sum(), [x, module.layer.weight])
    theirs = torch.autograd.grad(module.session.eager(x).sum(), [x, module.layer.weight])
    torch.testing.assert_close(ours, theirs)
    variant, _ = module.session.variant((x,), {})
    assert variant.backward is not None
    for program in (variant.program, variant.backward.program):
        assert labels(program.manifest) == {"named"}


def test_a_whole_step_gets_it(x: torch.Tensor):
    ours, theirs = Reluctant(), Reluctant()
    theirs.load_state_dict(ours.state_dict())
    step = daceml.compile_step(
        ours, functional.mse_loss, torch.optim.SGD(ours.parameters(), lr=0.5), recipe=MINE
    )
    y = torch.randn(4, 5)
    step(x, y)
    functional.mse_loss(theirs(x), y).backward()
    torch.optim.SGD(theirs.parameters(), lr=0.5).step()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    with raises(ConfigurationError, "'freeze'", "compile_step"):
        daceml.compile_step(
            ours, functional.mse_loss, torch.optim.SGD(ours.parameters(), lr=0.5), freeze=True
        )


def test_an_empty_recipe_transforms_nothing(x: torch.Tensor):
    module = daceml.compile(Reluctant(), backward=False, recipe=Recipe())
    torch.testing.assert_close(module(x), module.session.eager(x))
    assert daceml.explain(module, x).counts["kernels"] == 3


def test_copies_and_pickles_keep_it(x: torch.Tensor):
    module = daceml.compile(Reluctant(), backward=False, recipe=MINE)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert other.session.options["recipe"] == MINE.ordered()


def test_what_cannot_be_a_recipe_is_refused():
    for wrong, name in ((OneRelu(), "OneRelu"), (Recipe, "class Recipe")):
        with raises(ConfigurationError, "'recipe'", name):
            daceml.compile(nn.ReLU(), recipe=wrong)
    with raises(ConfigurationError, "recipe", "auto_optimize=False"):
        daceml.compile(nn.ReLU(), recipe=Recipe(), auto_optimize=False)
    with raises(ConfigurationError, "level", "Step(<lambda>, at="):
        daceml.compile(nn.ReLU(), recipe=Recipe(lambda network: None))
    with raises(ConfigurationError, "'verify'", "'all'", "verify=True"):
        daceml.compile(nn.ReLU(), verify="all")


def test_a_pass_that_breaks_the_network_is_named(x: torch.Tensor):
    module = daceml.compile(Reluctant(), backward=False, recipe=standard_recipe() + Recipe(break_network))
    with raises(PassError, "break_network", exact=False) as error:  # with dace's reason
        module(x)
    assert "layout" in error.value.where
    assert [error.value.what, error.value.where, error.value.fix] == [golden(), golden(), golden()]


def test_equal_recipes_share_a_program(x: torch.Tensor):
    first, second = (daceml.compile(nn.Sigmoid(), backward=False, recipe=r) for r in (MINE, MINE[:]))
    assert program(first, x) == program(second, x)
    assert program(daceml.compile(nn.Sigmoid(), backward=False), x) != program(first, x)
    assert program(daceml.compile(nn.Sigmoid(), backward=False, recipe=MINE[1:]), x) != program(first, x)


def program(module: Any, x: torch.Tensor) -> Path:
    return module.session.variant((x,), {})[0].program.stored.folder


def test_a_recipe_that_cannot_be_stored_is_compiled_anew(x: torch.Tensor, caplog: pytest.LogCaptureFixture):
    def local(network: Any) -> None: ...

    recipe = standard_recipe() + Recipe(Step(local, at="local"))
    with caplog.at_level(logging.INFO, "daceml"):
        assert recipe_key(recipe) != recipe_key(recipe)
    first, second = caplog.messages
    assert "recipe" in first and "local" in first and first == second and first == golden()
    modules = [daceml.compile(nn.Sigmoid(), backward=False, recipe=recipe) for _ in range(2)]
    assert program(modules[0], x) != program(modules[1], x)


def test_the_key_follows_the_sources_of_all_that_a_pass_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helper_of_a_pass.py").write_text("FACTOR = 2\ndef change(network): ...\n")
    (tmp_path / "own_pass.py").write_text(
        "from helper_of_a_pass import change\nLIMIT = 3\n"
        "def mine(network):\n    change(network)\nmine.level = 'local'\n"
    )
    import own_pass  # pyright: ignore[reportMissingImports]

    recipe = Recipe(own_pass.mine)
    key = recipe_key(recipe)
    assert recipe_key(Recipe(own_pass.mine)) == key
    monkeypatch.setattr(own_pass, "LIMIT", 4)
    assert recipe_key(recipe) != key
    monkeypatch.setattr(own_pass, "LIMIT", 3)
    assert recipe_key(recipe) == key
    (tmp_path / "helper_of_a_pass.py").write_text("FACTOR = 2\ndef change(network): network.sdfg\n")
    assert recipe_key(recipe) != key
    for name in ("own_pass", "helper_of_a_pass"):
        sys.modules.pop(name)


def test_the_key_follows_attributes_of_classes_and_levels(monkeypatch: pytest.MonkeyPatch):
    recipe = Recipe(OneRelu())
    key = recipe_key(recipe)
    monkeypatch.setattr(OneRelu, "strength", {"a": {1, 2}}, raising=False)
    other = recipe_key(recipe)
    assert other != key
    monkeypatch.setattr(OneRelu, "strength", {"a": {1, 3}}, raising=False)
    assert recipe_key(recipe) not in (key, other)
    loops = Recipe(name_loops)
    before = recipe_key(loops)
    monkeypatch.setattr(name_loops, "level", "hardware", raising=False)
    assert recipe_key(loops) != before

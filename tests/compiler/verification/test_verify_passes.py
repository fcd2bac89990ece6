"""`verify=True` names the pass that changes values, forward and backward, over operators and over loops."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import nn

import daceml
from daceml.compiler.verification.float64_network import widened
from daceml.compiler.verification.value_difference import largest_difference, limit_of
from daceml.compiler.verification.verify_passes import Sample
from daceml.errors import PassError
from daceml.frontend.onnx_import.importer import import_model
from daceml.sdfg.network import Network
from daceml.transformations import Recipe, standard_recipe
from tests.compiler.stages.recipe_passes import (
    LeakyTanh,
    OneRelu,
    WrongGradient,
    name_loops,
    scale_gradients,
    scale_results,
)
from tests.support.golden import golden, raises
from tests.support.operator_programs import parse
from tests.support.sampling import sampled


class Layers(nn.Module):
    """Tanhs over 4 and 5 columns."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.second(torch.tanh(self.first(x))))


def fault(recipe: Recipe, *facts: object, backward: bool) -> PassError:
    """The error that names these facts, and a difference whose size is that of this machine."""
    torch.manual_seed(0)
    module = daceml.compile(Layers(), backward=backward, recipe=recipe, verify=True)
    with raises(PassError, *facts, exact=False) as caught:
        module(torch.randn(3, 6, requires_grad=backward))
    return caught.value


WRONG = [
    (LeakyTanh(), "LeakyTanh", False, "2 of 2: .*node ", r"e-\d\d"),
    (LeakyTanh(), "LeakyTanh", True, "2 of 2: ", r"e-\d\d"),
    (scale_results, "scale_results", False, "forward", r"[12]\.\de-06"),
    (scale_results, "scale_results", True, "forward", r"1\.\de-06"),
    (scale_gradients, "scale_gradients", True, "backward", r"gradient .*e-06"),
]


@pytest.mark.parametrize(
    ("wrong", "name", "backward", "where", "difference"),
    sampled(WRONG, WRONG[0], *WRONG[3:]),
    ids=["rewrite", "rewrite before differentiation", "pass", "pass of a training", "pass of gradients"],
)
def test_a_wrong_pass_is_named(wrong: Any, name: str, backward: bool, where: str, difference: str):
    recipe = standard_recipe().before("fuse_maps", OneRelu(), wrong)
    if not backward:  # a program that was not verified is not taken from the cache
        daceml.compile(Layers(), backward=False, recipe=recipe)(torch.randn(3, 6))
    error = fault(recipe, name, "1.5e-08", "float64", "recipe.without(name)", backward=backward)
    assert re.search(where, error.where), error.where
    assert re.search(difference, error.why), error.why
    part, why = error.where.partition(": ")[0], re.sub(r"\d\.\d+e-\d\d", "(size)", error.why)
    assert [error.what, part, why, error.fix] == [golden() for _ in range(4)]


class Products(nn.Module):
    """A product of matrices, whose gradients are products."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(a) @ b


def test_a_wrong_pass_over_the_operators_of_the_backward_pass_is_named():
    inputs = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    recipe = standard_recipe() + Recipe(WrongGradient())
    module = daceml.compile(Products(), recipe=recipe, verify=True)
    with raises(PassError, "WrongGradient", "float64", exact=False) as error:
        module(*inputs)
    assert "1 of 1" in error.value.where and error.value.where.partition(": ")[0] == golden()


def test_a_wrong_pass_of_a_whole_step_is_named():
    model = Layers()
    step = daceml.compile_step(
        model, nn.functional.mse_loss, torch.optim.SGD(model.parameters()),
        recipe=standard_recipe() + Recipe(scale_results), verify=True,
    )  # fmt: skip
    with raises(PassError, "scale_results", "float64", exact=False) as error:
        step(torch.randn(3, 6), torch.randn(3, 5))
    assert error.value.where == golden()


def test_dropout_draws_the_same_in_both_runs():
    """Right passes pass: the verified program draws as the one before a pass does, and as eager."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.ReLU(), nn.Dropout(0.5))
    module = daceml.compile(model, recipe=standard_recipe() + Recipe(OneRelu(), name_loops), verify=True)
    x = torch.randn(5, 6)
    module(x).sum().backward()
    drawn: list[torch.Tensor] = []
    for forward in (module, module.session.eager):
        torch.manual_seed(0)
        drawn.append(forward(x))
    torch.testing.assert_close(*drawn)


def network(text: str) -> Network:
    return import_model(parse(text), name="network")


def test_a_network_is_widened_with_its_constants_and_casts():
    made = network(
        "g (float[4] X, int64[4] I) => (float[4] Y) "
        "{ C = Constant <value_float = 0.5> () F = Cast <to = 1> (I) A = Mul (X, F) Y = Mul (A, C) }"
    )
    wide = widened(made)
    assert wide is not None
    wide.sdfg.validate()
    kinds = {desc.dtype.to_string() for desc in wide.sdfg.arrays.values()}
    assert kinds == {"float64", "int64"}
    assert all(value.dtype == "float64" for value in wide.constants.values())
    assert limit_of(wide) < 1e-7 < limit_of(made)
    assert widened(network("g (int64[4] X) => (int64[4] Y) { Y = Neg (X) }")) is None


def test_samples_keep_shape_type_and_range():
    inputs = (
        torch.randn(3, 4) * 2 + 5,
        torch.tensor([3, 1, 2]),
        torch.tensor([0.0, -torch.inf]),
        torch.tensor(True),
        torch.randn(()),
        torch.ones(50),
    )
    drawn = Sample.like(inputs, {}).inputs
    assert [(a.shape, a.dtype) for a in drawn] == [(b.shape, b.dtype) for b in inputs]
    assert drawn[1].sort().values.tolist() == [1, 2, 3]
    assert sorted(drawn[2].tolist()) == [-torch.inf, 0.0]
    assert sorted(drawn[0].flatten().tolist()) == sorted(inputs[0].flatten().tolist())
    assert drawn[5].min() >= 1 and drawn[5].unique().numel() > 40
    again = Sample.like(inputs, {}).inputs
    assert all(map(torch.equal, drawn, again)), "seeded"


@pytest.mark.parametrize(
    ("ours", "theirs", "wrong"),
    [
        (torch.ones(4), torch.ones(4), False),
        (torch.ones(4) * (1 + 1e-3), torch.ones(4), True),
        (torch.full((4,), torch.nan), torch.full((4,), torch.nan), False),
        (torch.full((4,), torch.nan), torch.full((4,), torch.inf), True),
        (torch.full((4,), torch.inf), torch.full((4,), -torch.inf), True),
        (torch.full((4,), torch.inf), torch.ones(4), True),
        (torch.ones(4), torch.ones(4, 1), True),
        (torch.ones(4), torch.ones(4).double(), True),
        (torch.zeros(0), torch.zeros(0), False),
        (torch.ones(4), torch.zeros(4), True),
    ],
)
def test_differences(ours: torch.Tensor, theirs: torch.Tensor, wrong: bool):
    found = largest_difference({"0 y": ours}, {"0 y": theirs}, 3.5e-4)
    assert (found is not None) == wrong
    assert found is None or found.array == "y"


def test_what_rounding_leaves_of_zero_is_no_difference():
    theirs = {"0 y": torch.ones(4), "1 z": torch.full((4,), 1e-9)}
    assert largest_difference({"0 y": torch.ones(4), "1 z": torch.zeros(4)}, theirs, 3.5e-4) is None
    worst = largest_difference({"0 y": torch.ones(4), "1 z": torch.ones(4)}, theirs, 3.5e-4)
    assert worst is not None and worst.array == "z" and "float32" in worst.sentence


@pytest.mark.parametrize(
    ("off", "moved", "allowed"),
    [
        (1e-2, 4e-3, 1.6e-2),  # a few times as far as one rounding of the inputs moves it
        (1e-2, 4e-4, 1.6e-3),
        (1e-2, 0.0, 3.5e-4),
        (0.2, 1.0, 0.1),  # whatever moves it: that is something else
    ],
)
def test_a_network_that_makes_much_of_little_may_differ_by_more(off: float, moved: float, allowed: float):
    theirs = {"0 y": torch.ones(4)}
    found = largest_difference(
        {"0 y": torch.ones(4) + off}, theirs, 3.5e-4, moved=lambda: {"0 y": torch.ones(4) + moved}
    )
    assert (found is None) == (off < allowed)
    assert found is None or found.limit == pytest.approx(allowed, rel=1e-3)


def test_one_truth_value_may_turn_where_rounding_decides_it():
    theirs = torch.arange(4096) % 2 == 0
    ours = theirs.clone()
    ours[7] = ~ours[7]
    assert largest_difference({"0 m": ours}, {"0 m": theirs}, 3.5e-4) is None
    assert largest_difference({"0 m": ours}, {"0 m": theirs}, 1.5e-8) is not None

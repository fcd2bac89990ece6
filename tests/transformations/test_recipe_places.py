"""A recipe may say where a pass works: the other places are refused, with that as the reason."""

from __future__ import annotations

from pathlib import Path

import torch

from daceml.errors import ConfigurationError
from daceml.onnx_ops.lowering import lower
from daceml.sdfg.passes import ELSEWHERE
from daceml.transformations import Recipe, Step
from daceml.transformations.coarse.trivial_operators import remove_trivial_operators
from daceml.transformations.local.map_fusion import fuse_maps
from daceml.transformations.local.subgraph_fusion import fuse_subgraphs
from tests.support.golden import raises
from tests.support.imported_networks import imported
from tests.support.small_networks import build, elementwise
from tests.transformations.recipes import CHAIN, OneRelu, count_loops, count_operators

STEPS = ["_out = _a + dace.float32(1)", "_out = _a * dace.float32(3)", "_out = _a - dace.float32(2)"]


def test_maps_fuse_where_the_recipe_says(tmp_path: Path):
    x = torch.randn(5, 7)
    (plain,) = build(elementwise(STEPS, (5, 7)), tmp_path, key="plain")([x])
    network = elementwise(STEPS, (5, 7))
    Recipe(Step(fuse_maps, places=("x2",)))(network)
    record = network.passes[-1]
    assert record.places == ("x2",)
    assert [(r.subject, r.reason) for r in record.refused] == [("x1", ELSEWHERE)]
    assert count_loops(network) == 2 and network.places is None
    (fused,) = build(network, tmp_path, key="fused")([x])
    assert torch.equal(fused, plain)
    Recipe(Step(fuse_maps, places=("x1",)))(network)
    assert count_loops(network) == 1


def test_subgraphs_join_where_the_recipe_says():
    network = elementwise(STEPS, (5, 7))
    Recipe(Step(fuse_subgraphs, places=()))(network)
    assert count_loops(network) == 3
    assert {r.reason for r in network.passes[-1].refused} == {ELSEWHERE}
    Recipe(Step(fuse_subgraphs, places=("x1",)))(network)
    assert count_loops(network) == 2 and "x1" not in network.sdfg.arrays and "x2" in network.sdfg.arrays
    assert "x1" in network.passes[-1].places
    Recipe(fuse_subgraphs)(network)
    assert count_loops(network) == 1


def test_operators_are_rewritten_where_the_recipe_says():
    text = CHAIN.replace("Y = Neg (C)", "D = Neg (C) E = Relu (D) Y = Relu (E)")
    everywhere = imported(text)
    places = OneRelu()(everywhere).places
    assert len(places) == 2
    network = imported(text)
    Recipe(Step(OneRelu(), places=places[:1]))(network)
    assert network.passes[-1].places == places[:1]
    assert count_operators(network, "Relu") == count_operators(everywhere, "Relu") + 1
    lower(network)


def test_places_are_stored_and_compared():
    recipe = Recipe(Step(fuse_maps, places=("x1", "x2")), Step(OneRelu(), places=()))
    again = Recipe.from_json(recipe.to_json())
    assert again == recipe and again[0].places == ("x1", "x2") and again[1].places == ()
    assert again != Recipe(fuse_maps, OneRelu())


def test_a_pass_that_cannot_be_told_its_places_refuses_them():
    with raises(ConfigurationError, "remove_trivial_operators", "places", "by_place"):
        Step(remove_trivial_operators, places=("x1",))

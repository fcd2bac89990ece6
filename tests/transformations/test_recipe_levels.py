"""Passes belong to levels and situations; what they leave behind is checked after each of them."""

from __future__ import annotations

from typing import Any

import dace
import pytest

from daceml.errors import ConfigurationError, PassError
from daceml.onnx_ops.lowering import lower
from daceml.onnx_ops.schema.node import ONNXNode
from daceml.sdfg.network import Network
from daceml.transformations import Recipe, Step, standard_recipe
from daceml.transformations.local.map_fusion import fuse_maps
from daceml.transformations.recipe import LEVELS, LOOPS, fewest_wrong
from daceml.transformations.validation import canonical_fault, check_pass
from tests.support.golden import golden, raises
from tests.support.imported_networks import imported
from tests.transformations.recipes import CHAIN, OneRelu, count_loops, count_operators


def test_a_pass_says_its_level_or_lives_in_its_folder():
    assert Step(OneRelu()).level == "coarse"
    assert Step(fuse_maps).level == "local"
    assert Step(count_loops).level == "local"
    assert Step(count_loops, at="hardware").level == "hardware"
    assert Step(count_operators).level is None
    with raises(ConfigurationError, "count_operators", "coarse", 'at="local"'):
        Recipe(count_operators).ordered()


def test_joined_recipes_run_level_by_level():
    joined = (standard_recipe() + Recipe(count_loops, OneRelu())).ordered()
    levels = [LEVELS.index(step.level) for step in joined if step.level]
    assert levels == sorted(levels) and len(levels) == len(standard_recipe()) + 2
    assert joined.place("count_loops") == joined.place("fuse_subgraphs") + 1
    assert [s.name for s in joined.at("coarse")][-1] == "OneRelu"


def test_a_step_runs_in_its_situations_only():
    recipe = Recipe(Step(count_loops, only=("frozen", "training")), fuse_maps)
    assert [s.name for s in recipe.when("inference")] == ["fuse_maps"]
    assert [s.name for s in recipe.when("training")] == ["count_loops", "fuse_maps"]
    assert "count_loops (frozen, training)" in str(recipe)
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert Recipe.from_json(Recipe(Step(count_loops, at="layout")).to_json())[0].level == "layout"
    for wrong, named in (({"only": ("testing",)}, "'testing'"), ({"at": "loops"}, "'loops'")):
        with raises(ConfigurationError, next(iter(wrong)), named):
            Step(count_loops, **wrong)


def test_the_standard_recipe_is_one_for_all_situations():
    recipe = standard_recipe()
    assert recipe.ordered() == recipe
    assert [s.name for s in recipe.when("training").at("layout")] == ["sum_columns", "write_out_reductions"]
    assert "pack_weights" in [s.name for s in recipe.when("frozen")]
    assert all(len(line) < 80 for line in str(recipe).splitlines())


def test_a_pass_that_keeps_no_record_is_noted():
    network = imported(CHAIN)
    Recipe(Step(count_operators, {"kind": "Relu"}, "coarse"), Step(lambda n: None))(network)
    first, second = network.passes
    assert (first.level, first.name, first.applied) == ("coarse", "count_operators", {"count_operators": 2})
    assert (second.level, second.applied) == ("local", {})


def test_a_pass_that_raises_is_named():
    def stray(network: Network) -> None:
        raise KeyError("no such map")

    with raises(KeyError, "no such map", "pass stray"):
        Recipe(stray)(imported(CHAIN))


def test_the_first_places_of_a_rewrite():
    text = CHAIN.replace("Y = Neg (C)", "D = Neg (C) E = Relu (D) Y = Relu (E)")
    assert len(OneRelu().first_places(imported(text))) == 2
    network = imported(text)
    assert len(OneRelu().first_places(network, 1)) == 1
    assert count_operators(network, "Relu") == 3
    assert fewest_wrong(5, lambda count: count < 4) == 4
    assert fewest_wrong(5, lambda _: True) is None


def remove_operand(network: Network) -> None:
    """Takes an edge away."""
    node = next(n for n in network.state.nodes() if isinstance(n, ONNXNode))
    network.state.remove_edge(network.state.in_edges(node)[0])


def remove_input(network: Network) -> None:
    """Takes an array of the interface away."""
    network.inputs = (*network.inputs, "nothing")


def add_state(network: Network) -> None:
    """Breaks the one state into two."""
    network.sdfg.add_state("second")


@pytest.mark.parametrize(
    ("wrong", "fact"), [(remove_operand, "SDFG"), (remove_input, "nothing"), (add_state, "2 states")]
)
def test_an_invalid_network_is_the_fault_of_a_pass(wrong: Any, fact: str):
    recipe = Recipe(Step(count_operators, at="coarse"), Step(wrong, at="coarse"), OneRelu())
    # DaCe's words
    with raises(PassError, f"pass {wrong.__name__}", "level coarse", exact=fact != "SDFG") as error:
        recipe(imported(CHAIN), check_pass)
    assert fact in error.value.why


def lowered() -> Network:
    network = imported(CHAIN)
    lower(network)
    assert canonical_fault(network) is None
    return network


def written_access(network: Network) -> dace.nodes.AccessNode:
    return next(n for n in network.state.data_nodes() if network.state.in_degree(n) and n.data == "A")


def add_up(network: Network) -> None:
    (edge,) = network.state.in_edges(written_access(network))
    edge.data.wcr = "lambda a, b: a + b"


def write_twice(network: Network) -> None:
    network.state.add_mapped_tasklet(
        "again", {"i": "0:4"}, {}, "_out = 0.0", {"_out": dace.Memlet("A[i]")}, external_edges=True
    )


def forget_writer(network: Network) -> None:
    access = written_access(network)
    exit_ = network.state.in_edges(access)[0].src
    inside = network.state.scope_subgraph(network.state.entry_node(exit_)).nodes()
    network.state.remove_nodes_from(inside)


def stray_tasklet(network: Network) -> None:
    network.state.add_tasklet("stray", {}, {}, "pass")


def stray_operator(network: Network) -> None:
    node = next(n for n in imported(CHAIN).state.nodes() if isinstance(n, ONNXNode))
    network.state.add_node(node)


def nested(network: Network) -> None:
    inner = dace.SDFG("inner")
    inner.add_state()
    network.state.add_nested_sdfg(inner, {}, {})


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (add_up, "A is added"),
        (write_twice, "A is written"),
        (forget_writer, "A is read"),
        (stray_tasklet, "tasklet stray"),
        (stray_operator, "call"),
        (nested, "nested SDFG inner"),
    ],
)
def test_loops_stay_in_canonical_form(wrong: Any, named: str):
    network = lowered()
    wrong(network)
    fault = canonical_fault(network)
    assert fault == golden()
    assert named in fault


def test_the_standard_passes_leave_networks_that_pass():
    network = imported(CHAIN)
    recipe = standard_recipe().when("inference")
    recipe.at("coarse")(network, check_pass)
    lower(network)
    recipe.at(*LOOPS)(network, check_pass)
    assert count_loops(network) == 1

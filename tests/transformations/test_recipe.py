"""Recipes are data: they can be printed, stored, cut and joined, and a wrong pass is found in them."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from daceml import transformations
from daceml.errors import ConfigurationError
from daceml.sdfg.network import Network
from daceml.sdfg.passes import PassRecord
from daceml.transformations.local.subgraph_fusion import fuse_subgraphs
from daceml.transformations.recipe import Recipe, Step, first_wrong
from daceml.transformations.rewriting.rewrite import Rewrite
from daceml.transformations.standard import loop_recipe, operator_recipe
from tests.support.golden import raises
from tests.support.imported_networks import imported, operators
from tests.transformations.recipes import CHAIN, OneRelu, count_operators


class Renaming(OneRelu):
    """Keeps its argument under another name"""

    def __init__(self, limit: int) -> None:
        self._limit = limit


def spoil(network: Network) -> None:
    """Marks a network as wrong."""
    network.passes.append(PassRecord(level="coarse", name="spoiled"))


def test_passes_run_in_order_and_can_be_watched():
    network = imported(CHAIN)
    seen: list[tuple[str, list[str]]] = []
    recipe = Recipe(count_operators, OneRelu(), Step(count_operators, {"kind": "Relu"}))
    found = recipe(network, lambda step, n: seen.append((step.name, operators(n))))
    assert [name for name, _ in seen] == ["count_operators", "OneRelu", "count_operators"]
    assert seen[0][1] == ["Neg", "Neg", "Relu", "Relu"]
    assert seen[1][1] == seen[2][1] == ["Neg", "Neg", "Relu"]
    assert found["count_operators"] == 1
    assert found["OneRelu"].applied == {"OneRelu": 1}


def test_recipes_are_cut_and_joined():
    recipe = Recipe(count_operators, OneRelu())
    assert [s.name for s in recipe.before("OneRelu", spoil)] == ["count_operators", "spoil", "OneRelu"]
    assert [s.name for s in recipe.after("OneRelu", spoil)] == ["count_operators", "OneRelu", "spoil"]
    assert [s.name for s in recipe.without("OneRelu") + recipe[1:]] == ["count_operators", "OneRelu"]
    assert len(recipe) == 2, "the first one stays as it was"
    network = imported(CHAIN)
    recipe[:1](network)
    recipe[1:](network)
    assert operators(network) == ["Neg", "Neg", "Relu"]
    with raises(ConfigurationError, "'spoil'", "count_operators, OneRelu"):
        recipe.without("spoil")
    with raises(ConfigurationError, "'fuse_subgraph'", "'fuse_subgraphs'"):
        Recipe(fuse_subgraphs).without("fuse_subgraph")


def test_recipes_are_stored_and_read():
    recipe = Recipe(OneRelu(most=3), Step(count_operators, {"kind": "Relu"}))
    again = Recipe.from_json(recipe.to_json())
    assert again == recipe
    assert again != Recipe(OneRelu(most=4), Step(count_operators, {"kind": "Relu"}))
    network = imported(CHAIN)
    assert again(network)["OneRelu"].refused[0].reason == "more than 3 elements"

    def local(network: Network) -> None: ...

    with raises(ConfigurationError, "pass local"):
        Recipe(local).to_json()
    assert Recipe(local) == Recipe(local) != Recipe(spoil)
    for unstorable in (functools.partial(count_operators, kind="Relu"), Renaming(3)):
        with raises(ConfigurationError, Step(unstorable).name):
            Recipe(unstorable).to_json()


@pytest.mark.parametrize(
    "path",
    [
        "nowhere:missing",
        "pydoc:pipepager",
        "os:system",
        "daceml.transformations.recipe:inspect.getsource",  # of another module
        "daceml.transformations.recipe:textwrap",
        "daceml.transformations.nowhere:f",
        "daceml.transformations.recipe:Recipe.from_json",  # daceml's, and no pass
        ":",
    ],
)
def test_a_stored_recipe_runs_and_imports_nothing_else(path: str):
    text = json.dumps([{"pass": path, "options": {"text": "x", "cmd": "touch /tmp/ran"}}])
    before = set(sys.modules)
    with raises(ConfigurationError, path, "leave the step out"):
        Recipe.from_json(text)
    assert set(sys.modules) == before


def test_passes_of_a_new_process_are_found_in_modules_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "later_passes.py").write_text(
        "def plain(network): ...\ndef local(network): ...\nlocal.level = 'local'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    plain, local = (
        json.dumps([{"pass": f"later_passes:{name}", "options": {}}]) for name in ("plain", "local")
    )
    with raises(ConfigurationError, "later_passes is not loaded", "modules=['later_passes']"):
        Recipe.from_json(local)
    assert Recipe.from_json(plain, modules=["later_passes"])[0].name == "plain"
    assert Recipe.from_json(local)[0].name == "local", "it says that it is a pass, and is loaded"
    with raises(ConfigurationError, "later_passes:plain", "no level"):
        Recipe.from_json(plain)
    with raises(ConfigurationError, "OneRelu", "'most_of_all'"):
        Recipe.from_json(json.dumps([{"pass": stored_as(OneRelu()), "options": {"most_of_all": 1}}]))


def stored_as(run: Any) -> str:
    return json.loads(Recipe(run).to_json())[0]["pass"]


def test_the_standard_recipes_are_printed_and_stored():
    for recipe in (operator_recipe(), loop_recipe(), loop_recipe(training=True), loop_recipe(frozen=True)):
        assert Recipe.from_json(recipe.to_json()) == recipe
        assert all(step.summary for step in recipe)
    level, first, *_ = str(operator_recipe()).splitlines()
    assert level == "coarse" and first.startswith(" 1  place_padding ")
    assert "use_channels_last" in str(loop_recipe()) and "use_channels_last" not in str(
        loop_recipe(training=True)
    )


@pytest.mark.parametrize("place", range(7))
def test_a_wrong_pass_is_found(place: int):
    runs: list[int] = []

    def agrees(network: Network) -> bool:
        runs.append(1)
        return all(record.name != "spoiled" for record in network.passes)

    passes = [Step(count_operators, {"kind": str(i)}) for i in range(6)]
    recipe = Recipe(*passes[:place], spoil, *passes[place:])
    wrong = first_wrong(recipe, lambda: imported(CHAIN), agrees)
    assert wrong is not None and wrong.name == "spoil"
    assert len(runs) <= 5
    assert first_wrong(recipe.without("spoil"), lambda: imported(CHAIN), agrees) is None


def test_a_network_that_is_wrong_from_the_start_is_told():
    with raises(ConfigurationError, "network"):
        first_wrong(Recipe(count_operators), lambda: imported(CHAIN), lambda _: False)


def test_users_find_both_classes_in_the_package():
    assert transformations.Rewrite is Rewrite
    assert transformations.Recipe is Recipe
    with raises(AttributeError, "daceml.transformations", "'Recipy'"):
        _ = transformations.Recipy  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("given", [Rewrite, "lift", None])
def test_what_is_no_pass_is_refused_at_once(given: Any):
    with raises(ConfigurationError, getattr(given, "__name__", given), "Recipe(fuse_maps, OneRelu())"):
        Recipe(given)


@pytest.mark.parametrize("text", ["no json", "{}", '[{"options": {}}]', "[1]"])
def test_a_text_that_is_no_recipe_is_refused(text: str):
    # Python says why that is none
    with raises(ConfigurationError, "Recipe.to_json", exact=text != "no json"):
        Recipe.from_json(text)

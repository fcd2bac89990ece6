"""The exported recipe: a Python script that makes the same program again, or says that it is another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import daceml
from daceml.errors import ReplayError
from daceml.exploration.guided.guided import Guided
from daceml.exploration.guided.recipe_script import check_recipe, recipe_script
from daceml.transformations import Recipe, Rewrite
from daceml.tuning.model_call import Subject
from daceml.tuning.variant import Variant
from tests.support.golden import golden, raises
from tests.support.guided_models import Chain


class Passes:
    """Where a pass may be defined, too."""

    class Idle(Rewrite):
        """Sqrt(Sqrt(x)) -> Sqrt(x), which is wrong, and stands nowhere"""

        def pattern(self, op: Any, x: Any) -> Any:
            return op.Sqrt(op.Sqrt(x))

        def rewrite(self, op: Any, x: Any) -> Any:
            return op.Sqrt(x)


ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def guided() -> Guided:
    torch.manual_seed(0)
    found = Guided(Chain().eval(), (torch.randn(4, 6),), start="nothing")
    found.apply("fuse_maps", found.effect("fuse_maps").places[0])
    found.apply("schedule_maps")
    return found


def test_the_script_has_the_recipe_and_the_hash(guided: Guided):
    variables: dict[str, object] = {"__name__": "elsewhere"}
    exec(recipe_script(guided, title="Chain"), variables)
    recipe, known = variables["RECIPE"], variables["HASH"]
    assert recipe == guided.recipe and known == guided.program().lowered.identity
    again = Subject(Chain().eval(), (torch.randn(4, 6),), {}, training=False)
    assert again.lower(Variant(recipe=guided.recipe.to_json())).identity == known
    compiled = daceml.compile(guided.module, backward=False, recipe=recipe)
    x = torch.randn(4, 6)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), guided.module(x))


@pytest.mark.slow
def test_run_it_compares_the_program(guided: Guided, tmp_path: Path):
    script = recipe_script(guided, title="Chain", target="tests.support.guided_models:Chain")
    (tmp_path / "recipe.py").write_text(script)
    command, environment = (
        [sys.executable, str(tmp_path / "recipe.py")],
        {**os.environ, "PYTHONPATH": str(ROOT)},
    )
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[-1:] == [guided.program().lowered.identity]
    (tmp_path / "recipe.py").write_text(script.replace("    schedule_maps,\n", ""))
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert run.returncode == 1 and "[DML813] " in run.stderr


@pytest.mark.slow
def test_the_script_of_a_file_runs_in_any_folder(
    guided: Guided, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "started").mkdir()
    (tmp_path / "started" / "net.py").write_text("from tests.support.guided_models import Chain\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "started")
    script = recipe_script(guided, title="Chain", target="net.py:Chain")
    (tmp_path / "recipe.py").write_text(script)
    run = subprocess.run(
        [sys.executable, str(tmp_path / "recipe.py")], capture_output=True, text=True, check=False,
        cwd=tmp_path / "elsewhere", env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert run.stdout.split()[-1:] == [guided.program().lowered.identity], run.stderr


def test_the_script_of_a_module_says_where_to_run_it(
    guided: Guided, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    script = recipe_script(guided, title="Chain", target="tests.support.guided_models:Chain")
    (line,) = [line for line in script.splitlines() if str(tmp_path) in line]
    assert line == golden()
    assert "tests.support.guided_models" in line


def test_passes_of_a_class_and_names_with_quotes_are_written_down():
    guided = Guided(Chain().eval(), (torch.randn(4, 6),), start="nothing", offered=Recipe(Passes.Idle()))
    guided.apply("Idle")
    script = recipe_script(guided, title='a "model"', target='folder\\x"y.py:Net')
    variables: dict[str, object] = {"__name__": "elsewhere"}
    exec(compile(script, "recipe.py", "exec"), variables)
    assert variables["RECIPE"] == guided.recipe


def test_another_program_is_refused(guided: Guided):
    with raises(ReplayError, "000000000000", exact=False) as error:
        check_recipe(Chain().eval(), (torch.randn(5, 6),), guided.recipe, hash="0" * 64, training=False)
    assert [error.value.why, error.value.fix] == [golden(), golden()]
    assert "daceml gui" in error.value.fix

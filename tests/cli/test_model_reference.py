"""MODEL on the command line: what it may be, and how a wrong one is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch import nn

from daceml.cli.model_reference import resolve
from daceml.errors import ModelReferenceError, OnnxFileError
from daceml.module.onnx_model import ONNXModel
from tests.support.golden import golden, raises
from tests.support.onnx_files import save_sum

FILE = str(Path(__file__).with_name("models.py"))


@pytest.fixture(autouse=True)
def _search_path(monkeypatch: pytest.MonkeyPatch):
    """References put folders into sys.path, as running a script does."""
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.parametrize(("name", "kind"), [("Mish", "Mish"), ("instance", "Sequential"), ("make", "Linear")])
def test_a_class_an_instance_or_a_function_of_a_file(name: str, kind: str):
    assert type(resolve(f"{FILE}:{name}")).__name__ == kind


def test_a_name_in_a_package():
    assert isinstance(resolve("torch.nn:ReLU"), nn.ReLU)


def test_models_are_in_eval_mode_unless_asked_for_training():
    assert not resolve(f"{FILE}:instance").training
    assert resolve(f"{FILE}:instance", train=True).training


def test_an_onnx_file(tmp_path: Path):
    assert isinstance(resolve(str(save_sum(tmp_path))), ONNXModel)


def test_a_missing_onnx_file():
    with raises(OnnxFileError, "missing.onnx"):
        resolve("missing.onnx")


def test_a_file_of_the_name_of_a_loaded_module_does_not_replace_it(tmp_path: Path):
    (tmp_path / "json.py").write_text("from torch import nn\nmodel = nn.ReLU()\n")
    before = sys.modules["json"]
    assert isinstance(resolve(f"{tmp_path / 'json.py'}:model"), nn.ReLU)
    assert sys.modules["json"] is before


def test_no_name():
    with raises(ModelReferenceError, "'model.py'", "path.py:Name", "package.module:Name", ".onnx"):
        resolve("model.py")


def test_no_such_file():
    with raises(ModelReferenceError, "nowhere/model.py", Path.cwd(), "path.py:Name"):
        resolve("nowhere/model.py:Net")


def test_a_misspelt_name():
    names = "Mish, Sized, Broken, Wrong, instance, make"
    with raises(ModelReferenceError, FILE, "Mitsch", names, f"{FILE}:Mish?"):
        resolve(f"{FILE}:Mitsch")


def test_a_file_that_fails(tmp_path: Path):
    file = tmp_path / "fails.py"
    file.write_text("import torch\nimport no_such_package\n")
    with raises(ModelReferenceError, f"{file}:2", "ModuleNotFoundError", "'no_such_package'"):
        resolve(f"{file}:Net")


def test_no_such_module():
    with raises(ModelReferenceError, "no_such_package.models", "ModuleNotFoundError", "'no_such_package'"):
        resolve("no_such_package.models:Net")


def test_a_class_that_needs_arguments():
    with raises(ModelReferenceError, f"{FILE}:Sized", "size, bias"):
        resolve(f"{FILE}:Sized")


def test_a_class_whose_constructor_fails():
    facts = (f"{FILE}:Broken", f"where: {FILE}:", "ValueError: no weights here")
    with raises(ModelReferenceError, *facts, exact=False) as refused:  # where: a line of that file
        resolve(f"{FILE}:Broken")
    assert [refused.value.what, refused.value.fix] == [golden(), golden()]


def test_a_value_that_is_no_model():
    with raises(ModelReferenceError, f"{FILE}:number", "int", "nn.Module"):
        resolve(f"{FILE}:number")
    with raises(ModelReferenceError, f"{FILE}:make_nothing", "NoneType", "nn.Module"):
        resolve(f"{FILE}:make_nothing")

"""MODEL on the command line: what it may be, and how a wrong one is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch import nn

from daceml.cli.model_reference import resolve
from daceml.errors import ModelReferenceError, OnnxFileError
from daceml.frontend.onnx_model import ONNXModel
from tests.cli.onnx_files import save_sum

FILE = str(Path(__file__).with_name("models.py"))


@pytest.fixture(autouse=True)
def _search_path(monkeypatch: pytest.MonkeyPatch):
    """References put folders into sys.path, as running a script does."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def refusal(reference: str) -> str:
    with pytest.raises(ModelReferenceError) as caught:
        resolve(reference)
    return str(caught.value)


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
    with pytest.raises(OnnxFileError, match=r"\[?missing\.onnx cannot be read"):
        resolve("missing.onnx")


def test_a_file_of_the_name_of_a_loaded_module_does_not_replace_it(tmp_path: Path):
    (tmp_path / "json.py").write_text("from torch import nn\nmodel = nn.ReLU()\n")
    before = sys.modules["json"]
    assert isinstance(resolve(f"{tmp_path / 'json.py'}:model"), nn.ReLU)
    assert sys.modules["json"] is before


def test_no_name():
    assert refusal("model.py") == (
        "[DML501] 'model.py' names no model\n"
        "  why:   there is no name after a colon\n"
        "  fix:   write path.py:Name, package.module:Name or a .onnx file"
    )


def test_no_such_file():
    text = refusal("nowhere/model.py:Net")
    assert text.startswith("[DML501] there is no file nowhere/model.py\n  where: folder ")
    assert text.endswith("fix:   check the path; write path.py:Name, package.module:Name or a .onnx file")


def test_a_misspelt_name():
    text = refusal(f"{FILE}:Mitsch")
    assert text.startswith(
        f"[DML501] {FILE} has no Mitsch\n  why:   it has Mish, Sized, Broken, Wrong, instance, make"
    )
    assert text.endswith(f"fix:   did you mean {FILE}:Mish?")


def test_a_file_that_fails(tmp_path: Path):
    file = tmp_path / "fails.py"
    file.write_text("import torch\nimport no_such_package\n")
    assert refusal(f"{file}:Net") == (
        f"[DML501] {file} cannot be loaded\n"
        f"  where: {file}:2\n"
        "  why:   ModuleNotFoundError: No module named 'no_such_package'\n"
        "  fix:   mend the file, then try again"
    )


def test_no_such_module():
    text = refusal("no_such_package.models:Net")
    assert text.startswith("[DML501] the module no_such_package.models cannot be imported\n")
    assert "why:   ModuleNotFoundError: No module named 'no_such_package'" in text


def test_a_class_that_needs_arguments():
    assert refusal(f"{FILE}:Sized") == (
        f"[DML501] {FILE}:Sized needs arguments: size, bias\n"
        "  why:   a class is called without any\n"
        "  fix:   write a function without arguments that returns the module, and name that"
    )


def test_a_class_whose_constructor_fails():
    text = refusal(f"{FILE}:Broken")
    assert text.startswith(f"[DML501] the class {FILE}:Broken failed\n  where: {FILE}:")
    assert "why:   ValueError: no weights here" in text


def test_a_value_that_is_no_model():
    assert "is a int\n  why:   a model is an nn.Module, its class, or a function" in refusal(f"{FILE}:number")
    assert "make_nothing makes a NoneType\n  why:   a model is an nn.Module" in refusal(
        f"{FILE}:make_nothing"
    )

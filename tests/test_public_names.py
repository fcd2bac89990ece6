"""`import daceml`: the names that users write, each loaded at first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

import daceml
from tests.support.golden import raises


@pytest.mark.parametrize("name", daceml.__all__)
def test_every_public_name_is_there(name: str):
    assert getattr(daceml, name) is not None
    assert name in dir(daceml)


def test_a_public_name_is_looked_up_once():
    assert daceml.explain is daceml.explain
    assert "explain" in vars(daceml)


def test_options_and_errors_are_reached_as_modules():
    assert daceml.config.config() == daceml.config.config()
    assert daceml.errors.BuildError.code == "DML401"


def test_an_unknown_name_is_an_attribute_error():
    with raises(AttributeError, "'daceml'", "'complie'"):
        daceml.complie  # noqa: B018


def test_compile_takes_modules_only():
    taken = ("daceml.compile", "nn.Module", "daceml.dace_module", "daceml.ONNXModel")
    with raises(daceml.errors.ConfigurationError, *taken, "builtin_function_or_method"):
        daceml.compile(len)  # pyright: ignore[reportArgumentType]


def test_importing_the_public_names_needs_no_compiler():
    heavy = "{'dace', 'onnx', 'onnxruntime'}"
    code = f"import sys; from daceml import *; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]", "dace and onnx are for compiling, not for loading"

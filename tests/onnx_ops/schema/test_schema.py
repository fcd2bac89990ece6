"""What the schema reader says about operators whose schemas are peculiar."""

from __future__ import annotations

import math

import numpy as np
import onnx.defs
import onnx.helper
import pytest

from daceml.errors import UnknownOperatorError
from daceml.onnx_ops.schema.schema import exact_float, operator_names, read_schema, since_versions
from tests.support.golden import golden, raises


def connectors(op_type: str, side: str, version: int | None = None) -> list[str]:
    return [formal.connector for formal in getattr(read_schema(op_type, "", version), side)]


def test_connectors_are_the_formal_names():
    assert connectors("Conv", "inputs") == ["X", "W", "B"]
    assert connectors("Conv", "outputs") == ["Y"]


def test_a_name_of_an_input_and_an_output_gets_a_suffix_on_each_side():
    assert connectors("BatchNormalization", "inputs", 9) == ["X", "scale", "B", "mean_in", "var_in"]
    assert connectors("BatchNormalization", "outputs", 9)[:3] == ["Y", "mean_out", "var_out"]
    assert connectors("BatchNormalization", "inputs", 15)[3:] == ["input_mean", "input_var"]


def test_a_name_that_is_no_identifier_is_mended():
    assert connectors("Split", "outputs", 1) == ["outputs_out"]


def test_actuals_of_a_variadic_formal_are_numbered():
    assert read_schema("Concat").connectors("inputs", [True, True]) == ["inputs__0", "inputs__1"]
    assert read_schema("Concat").connectors("outputs", [True, True]) is None


def test_an_absent_optional_has_no_connector():
    assert read_schema("Clip").connectors("inputs", [True, False, True]) == ["input", None, "max"]


def test_attributes_have_kind_default_and_obligation():
    attributes = read_schema("LayerNormalization").attributes
    assert (attributes["epsilon"].kind, attributes["epsilon"].default) == ("float", 1e-05)
    assert read_schema("Cast").attributes["to"].required
    assert read_schema("Conv").attributes["auto_pad"].default == "NOTSET"
    assert read_schema("Conv").attributes["pads"].default is None


def test_type_variables_and_fixed_types():
    pow_ = read_schema("Pow")
    assert [f.type_variable for f in pow_.inputs] == ["T", "T1"]
    shape = read_schema("Reshape").inputs[1]
    assert shape.type_variable is None and shape.types == {"tensor(int64)"}


def test_the_version_in_force_is_the_newest_not_above_the_opset():
    assert read_schema("Conv", "", 18).since_version == 11
    assert read_schema("Conv", "ai.onnx", 22).since_version == 22
    assert [v for v, _ in since_versions("Relu")] == [1, 6, 13, 14]


@pytest.mark.parametrize(("op_type", "since"), [("Upsample", "opset 10"), ("Gelu", "opset 20")])
def test_what_an_opset_has_not_is_refused_with_the_reason(op_type: str, since: str):
    with raises(UnknownOperatorError, op_type, "opset 13", since):
        read_schema(op_type, "", 13)


@pytest.mark.parametrize(
    ("op_type", "version", "facts"),
    [
        ("Frobnicate", None, ["Frobnicate", "'ai.onnx'"]),
        ("Relu", 10_000, ["opset 10000", str(onnx.defs.onnx_opset_version())]),
    ],
    ids=["operator", "opset"],
)
def test_what_this_onnx_has_not_is_refused_with_its_version(
    op_type: str, version: int | None, facts: list[str]
):
    with raises(UnknownOperatorError, f"onnx {onnx.__version__}", *facts, exact=False) as refusal:
        read_schema(op_type, "", version)
    assert [refusal.value.what, refusal.value.fix] == [golden(), golden()]


def test_every_operator_of_every_version_can_be_read():
    count = 0
    for op_type in operator_names():
        for version, deprecated in since_versions(op_type):
            if not deprecated:
                assert read_schema(op_type, "", version).since_version == version
                count += 1
    assert count > 600


def test_float_attributes_keep_the_decimal_that_was_written():
    assert exact_float(onnx.helper.make_attribute("a", 1e-5).f) == 1e-5
    for number in (2.0**-16, 2.0**20 + 1, 3.4028234663852886e38, math.inf, -0.044715, 0.0):
        assert exact_float(onnx.helper.make_attribute("a", number).f) == number
    assert exact_float(onnx.helper.make_attribute("a", 1 / 3).f) == float(np.float32(1 / 3))
    assert math.isnan(exact_float(math.nan))

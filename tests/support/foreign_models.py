"""Models that come from elsewhere, for tests: from ONNX text into the importer, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import onnx.parser

from daceml.errors import DacemlError
from daceml.frontend.onnx_import.importer import import_source
from daceml.frontend.onnx_import.model_file import ModelSource, checked
from daceml.sdfg.network import Network
from tests.support.golden import raises


def parse(graph: str, *, opset: int = 20, functions: str = "") -> onnx.ModelProto:
    """A model from ONNX's own text form."""
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{graph}\n{functions}')


def imported(model: onnx.ModelProto | str, **options: Any) -> Network:
    model = parse(model) if isinstance(model, str) else model
    return import_source(checked(ModelSource(model=model, name="net")), name="net", **options)


def assert_refused(
    model: onnx.ModelProto | str, kind: type[DacemlError], *facts: object, exact: bool = True
) -> None:
    """The importer's error is of a kind, names these facts, and has a place, a reason and a way out."""
    with raises(kind, *facts, exact=exact) as caught:
        imported(model)
    assert caught.value.where and caught.value.why and caught.value.fix


MLP = """
    g (float[N, 4] x) => (float[N, 3] y)
    <float[4, 3] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 2.0, 3.0}>
    { h = MatMul(x, w)  r = Relu(h)  y = Softmax<axis = 1>(r) }"""


def changed(change: Callable[[onnx.GraphProto], Any]) -> onnx.ModelProto:
    model = parse(MLP)
    change(model.graph)
    return model

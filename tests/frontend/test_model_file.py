"""Good and bad `.onnx` files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from daceml.errors import OnnxFileError, UnknownOperatorError
from daceml.frontend.importer import import_file
from daceml.frontend.model_file import load_model


@pytest.fixture
def model() -> onnx.ModelProto:
    parsed = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 20]>
        g (float[2, 3] x) => (float[2, 3] y) { y = Mul(x, w) }""")
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    parsed.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return parsed


def save_external(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save_model(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path.parent / "w.bin"


def refusal(path: Path) -> str:
    with pytest.raises(OnnxFileError) as caught:
        load_model(path)
    text = str(caught.value)
    assert text.startswith("[DML202]") and str(path) in text and "why:" in text and "fix:" in text
    return text


def test_a_file_becomes_a_network(model: onnx.ModelProto, tmp_path: Path):
    onnx.save_model(model, tmp_path / "m.onnx")
    network, loaded = import_file(tmp_path / "m.onnx", name="m")
    assert network.constants["w"].tolist() == [[0, 1, 2], [3, 4, 5]] and loaded == model


def test_external_data_is_loaded(model: onnx.ModelProto, tmp_path: Path):
    save_external(model, tmp_path / "m.onnx")
    network, _ = import_file(tmp_path / "m.onnx", name="m")
    assert network.constants["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_missing_external_data(model: onnx.ModelProto, tmp_path: Path):
    data = save_external(model, tmp_path / "m.onnx")
    data.write_bytes(data.read_bytes()[:10])
    assert "'w' needs 24 bytes of 'w.bin': it has 10" in refusal(tmp_path / "m.onnx")
    data.unlink()
    assert "'w' lies in 'w.bin', which is not there" in refusal(tmp_path / "m.onnx")


def test_no_file_a_folder_no_bytes_and_noise(tmp_path: Path):
    assert "there is no such file" in refusal(tmp_path / "none.onnx")
    assert "it is a folder" in refusal(tmp_path)
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"")
    assert "no graph" in refusal(path)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" * 20)
    assert "do not parse" in refusal(path)


def test_every_truncation_is_an_error_with_a_reason(model: onnx.ModelProto, tmp_path: Path):
    whole = model.SerializeToString()
    path = tmp_path / "cut.onnx"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            load_model(path)
        except OnnxFileError:
            continue
        # protobuf has no end mark: a cut between two fields of the model leaves a smaller, complete model.
        assert onnx.load(path).graph == model.graph


def test_an_invalid_graph(model: onnx.ModelProto, tmp_path: Path):
    model.graph.node[0].input[0] = "ghost"
    onnx.save_model(model, tmp_path / "m.onnx")
    assert "ghost" in refusal(tmp_path / "m.onnx")


def test_unknown_operators_are_left_to_the_importer(model: onnx.ModelProto, tmp_path: Path):
    model.graph.node[0].op_type = "Frobnicate"
    onnx.save_model(model, tmp_path / "m.onnx")
    with pytest.raises(UnknownOperatorError, match="Frobnicate"):
        import_file(tmp_path / "m.onnx", name="m")

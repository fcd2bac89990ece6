"""Reading `.onnx` files and the data beside them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from daceml.compiler.keys.program_key import model_key
from daceml.errors import OnnxFileError, UnknownOperatorError
from daceml.frontend.onnx_import.importer import import_file, import_source
from daceml.frontend.onnx_import.model_file import ModelSource, checked, read_model
from daceml.module.onnx_model import ONNXModel
from tests.support.golden import raises


@pytest.fixture
def model() -> onnx.ModelProto:
    parsed = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 20]>
        g (float[2, 3] x) => (float[2, 3] y) { y = Mul(x, w) }""")
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    parsed.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    return parsed


def tensor_beside(name: str, dims: list[int], location: str, offset: int | None = None) -> TensorProto:
    """A float tensor whose data lies in another file; no offset or length where none is given."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    if offset is not None:
        tensor.external_data.add(key="offset", value=str(offset))
        tensor.external_data.add(key="length", value=str(4 * int(np.prod(dims))))
    return tensor


def products(*weights: TensorProto) -> onnx.ModelProto:
    """x w0 w1 …; x: [N, first dimension of w0]."""
    nodes = [helper.make_node("MatMul", [f"h{i}", w.name], [f"h{i + 1}"]) for i, w in enumerate(weights)]
    first = helper.make_tensor_value_info("h0", TensorProto.FLOAT, ["N", weights[0].dims[0]])
    last = helper.make_tensor_value_info(f"h{len(weights)}", TensorProto.FLOAT, ["N", weights[-1].dims[1]])
    graph = helper.make_graph(nodes, "products", [first], [last], list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder that has another name in every run; pytest's has the number of tests with such a name."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def assert_refused(path: Path, *facts: object, exact: bool = True) -> None:
    """The error names the file and these facts, and has a reason and a way out."""
    with raises(OnnxFileError, path, *facts, exact=exact) as caught:
        read_model(path)
    assert caught.value.why and caught.value.fix


def test_a_file_becomes_a_network(model: onnx.ModelProto, tmp_path: Path):
    onnx.save_model(model, tmp_path / "m.onnx")
    network = import_file(tmp_path / "m.onnx", name="m")
    assert network.constants["w"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert read_model(tmp_path / "m.onnx").model == model


def test_small_tensors_beside_the_model_are_constants_of_the_program(model: onnx.ModelProto, tmp_path: Path):
    onnx.save_model(
        model, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    network = import_file(tmp_path / "m.onnx", name="m")
    assert network.constants["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_large_tensors_may_lie_in_several_files_and_folders(tmp_path: Path):
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal((40, 40), dtype=np.float32) for _ in range(3))
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "ab.bin").write_bytes(b"head" + a.tobytes() + b.tobytes() + b"tail")
    (tmp_path / "deep" / "er" / "c.bin").write_bytes(c.tobytes())
    names = [
        tensor_beside("a", [40, 40], "ab.bin", 4),
        tensor_beside("b", [40, 40], "ab.bin", 4 + a.nbytes),
        tensor_beside("c", [40, 40], "deep/er/c.bin"),
    ]
    onnx.save_model(products(*names), tmp_path / "m.onnx")
    source = read_model(tmp_path / "m.onnx")
    weights = source.weights(["a", "c"])
    assert set(weights) == {"a", "c"} and torch.equal(weights["c"], torch.from_numpy(c))
    assert (
        weights["a"].data_ptr() % 64 == 0
    )  # as torch's own tensors, although the file starts with four bytes
    whole = source.complete()
    assert numpy_helper.to_array(whole.graph.initializer[1]).tolist() == b.tolist()
    assert source.model.graph.initializer[1].data_location == TensorProto.EXTERNAL, "the source is unchanged"
    x = rng.standard_normal((2, 40), dtype=np.float32)
    # three products of 40 numbers
    np.testing.assert_allclose(ONNXModel(tmp_path / "m.onnx")(x), x @ a @ b @ c, rtol=1e-3, atol=1e-3)


def test_models_above_two_gigabytes_are_imported_without_their_data(tmp_path: Path):
    """The data file has a hole of 3 GB: whoever read it would be noticed, and protobuf could not write it."""
    side = 16384
    with (tmp_path / "w.bin").open("wb") as stream:
        stream.truncate(3 * side * side * 4)
    weights = [tensor_beside(f"w{i}", [side, side], "w.bin", i * side * side * 4) for i in range(3)]
    onnx.save_model(products(*weights), tmp_path / "m.onnx")
    source = read_model(tmp_path / "m.onnx")
    model_key(source.model, {}, source.weight_names())
    (tmp_path / "w.bin").unlink()
    network = import_source(source, name="m")
    assert set(network.weights) == {"w0", "w1", "w2"} and not network.constants


def test_values_of_large_tensors_are_no_part_of_the_program():
    a, b = (numpy_helper.from_array(np.full((40, 40), value, dtype=np.float32), "w") for value in (1, 2))
    small = [numpy_helper.from_array(np.full((4, 4), value, dtype=np.float32), "w") for value in (1, 2)]
    keys = [
        model_key(s.model, {}, s.weight_names())
        for s in (ModelSource(model=products(t), name="m") for t in (a, b, *small))
    ]
    assert keys[0] == keys[1] != keys[2] != keys[3]
    first, second = ONNXModel(products(a)), ONNXModel(products(b))
    x = np.ones((1, 40), dtype=np.float32)
    assert first(x)[0, 0] == 40 and second(x)[0, 0] == 80
    assert "sdfg" not in second.stages_s, "the second model loaded the first one's program"


def test_a_program_keeps_the_data_and_lets_the_model_go(tmp_path: Path):
    weight = numpy_helper.from_array(np.ones((40, 40), dtype=np.float32), "w")
    onnx.save_model(products(weight), tmp_path / "m.onnx")
    compiled = ONNXModel(tmp_path / "m.onnx")
    compiled(torch.ones(1, 40))
    assert compiled._source is None
    assert compiled.model == products(weight), "read again"
    (tmp_path / "m.onnx").unlink()
    assert compiled(torch.ones(1, 40))[0, 0] == 40


def test_missing_and_short_data(model: onnx.ModelProto, tmp_path: Path):
    model.graph.initializer[0].CopyFrom(tensor_beside("w", [2, 3], "w.bin"))
    onnx.save_model(model, path := tmp_path / "m.onnx")
    assert_refused(path, "'w'", "'w.bin'")
    (tmp_path / "w.bin").write_bytes(b"\0" * 10)
    assert_refused(path, "'w'", 24, "'w.bin'", 10)
    (tmp_path / "w.bin").unlink()
    (tmp_path / "w.bin").mkdir()
    assert_refused(path, "'w'", "'w.bin'")
    (tmp_path / "w.bin").rmdir()
    os.mkfifo(tmp_path / "w.bin")  # reading it would wait forever
    assert_refused(path, "'w'", "'w.bin'")


def test_data_that_has_changed_since_the_model_was_read(tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(b"\0" * 6400)
    onnx.save_model(products(tensor_beside("w", [40, 40], "w.bin")), tmp_path / "m.onnx")
    compiled = ONNXModel(tmp_path / "m.onnx")
    (tmp_path / "w.bin").write_bytes(b"\0" * 6399)
    with raises(OnnxFileError, "'w.bin'"):
        compiled(torch.ones(1, 40))


@pytest.mark.parametrize(
    "location",
    [
        "/etc/passwd", "../w.bin", "a/../../w.bin", "..\\w.bin", "", "w.bin\0", "deep/", "link.bin",
        "linked/w.bin",
    ],
    ids=[
        "absolute", "above", "above by a detour", "above as Windows writes it", "nothing", "no text",
        "folder", "link", "in a linked folder",
    ],
)  # fmt: skip
def test_data_outside_of_the_models_folder_is_not_read(location: str, model: onnx.ModelProto, tmp_path: Path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "outside" / "w.bin").write_bytes(b"\0" * 24)
    (tmp_path / "w.bin").write_bytes(b"\0" * 24)
    (tmp_path / "model" / "link.bin").symlink_to(tmp_path / "outside" / "w.bin")
    (tmp_path / "model" / "linked").symlink_to(tmp_path / "outside")
    model.graph.initializer[0].CopyFrom(tensor_beside("w", [2, 3], location))
    onnx.save_model(model, tmp_path / "model" / "m.onnx")
    assert_refused(tmp_path / "model" / "m.onnx", "'w'", repr(location))


def test_links_within_a_store_of_files_are_followed(model: onnx.ModelProto, tmp_path: Path):
    """As download caches lay models out: links in one folder, contents in another."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    model.graph.initializer[0].CopyFrom(tensor_beside("w", [2, 3], "w.bin"))
    onnx.save_model(model, tmp_path / "blobs" / "1234")
    (tmp_path / "blobs" / "5678").write_bytes(np.ones(6, dtype=np.float32).tobytes())
    (tmp_path / "snapshot" / "m.onnx").symlink_to("../blobs/1234")
    (tmp_path / "snapshot" / "w.bin").symlink_to("../blobs/5678")
    network = import_file(tmp_path / "snapshot" / "m.onnx", name="m")
    assert network.constants["w"].tolist() == [[1, 1, 1], [1, 1, 1]]


@pytest.mark.parametrize(
    ("key", "value"), [("offset", "-4"), ("offset", "1e3"), ("length", "٣"), ("offset", "9" * 30)]
)
def test_malformed_entries_of_external_data(key: str, value: str, model: onnx.ModelProto, tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(b"\0" * 24)
    tensor = tensor_beside("w", [2, 3], "w.bin")
    tensor.external_data.add(key=key, value=value)
    model.graph.initializer[0].CopyFrom(tensor)
    onnx.save_model(model, tmp_path / "m.onnx")
    assert_refused(tmp_path / "m.onnx", key, "'w'", repr(value))


def test_a_length_that_contradicts_the_shape(model: onnx.ModelProto, tmp_path: Path):
    (tmp_path / "w.bin").write_bytes(b"\0" * 100)
    tensor = tensor_beside("w", [2, 3], "w.bin")
    tensor.external_data.add(key="length", value="28")
    model.graph.initializer[0].CopyFrom(tensor)
    onnx.save_model(model, tmp_path / "m.onnx")
    assert_refused(tmp_path / "m.onnx", "'w'", 28, "'w.bin'", 24)


def test_a_model_in_memory_does_not_say_where_its_data_is(model: onnx.ModelProto):
    model.graph.initializer[0].CopyFrom(tensor_beside("w", [2, 3], "w.bin"))
    with raises(OnnxFileError, "'w'", "ModelProto", "onnx.load_external_data_for_model"):
        ONNXModel(model)


def test_attributes_get_their_data(tmp_path: Path):
    node = helper.make_node("Constant", [], ["y"])
    node.attribute.append(helper.make_attribute("value", tensor_beside("", [2], "c.bin")))
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    made = helper.make_model(helper.make_graph([node], "g", [], [out]), ir_version=9)
    onnx.save_model(made, tmp_path / "m.onnx")
    (tmp_path / "c.bin").write_bytes(np.array([3, 4], dtype=np.float32).tobytes())
    assert import_file(tmp_path / "m.onnx", name="m").constants["y"].tolist() == [3, 4]


def test_no_file_a_folder_no_bytes_and_noise(tmp_path: Path):
    assert_refused(tmp_path / "none.onnx")
    (tmp_path / "folder.onnx").mkdir()
    assert_refused(tmp_path / "folder.onnx")
    os.mkfifo(tmp_path / "pipe.onnx")
    assert_refused(tmp_path / "pipe.onnx")
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"")
    assert_refused(path, "graph")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" * 20)
    assert_refused(path, "160 bytes", "protobuf", exact=False)  # with protobuf's own reason
    with path.open("wb") as stream:
        stream.truncate(2**31)
    assert_refused(path, 2147483648, 2147483647)


def test_every_truncation_is_an_error_with_a_reason(model: onnx.ModelProto, tmp_path: Path):
    whole = model.SerializeToString()
    path = tmp_path / "cut.onnx"
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            read_model(path)
        except OnnxFileError:
            continue
        # protobuf has no end mark: a cut between two fields of the model leaves a smaller, complete model.
        assert onnx.load(path).graph == model.graph


def test_bytes_of_booleans_are_zero_or_one():
    tensor = TensorProto(
        name="b", data_type=TensorProto.BOOL, dims=[1100], raw_data=bytes([0, 1, 2, 255] * 275)
    )
    given = helper.make_tensor_value_info("b", TensorProto.BOOL, [1100])
    source = checked(
        ModelSource(model=helper.make_model(helper.make_graph([], "g", [], [given], [tensor])), name="m")
    )
    assert source.weights(["b"])["b"].view(torch.uint8).unique().tolist() == [0, 1]


def test_unknown_operators_are_left_to_the_importer(model: onnx.ModelProto, tmp_path: Path):
    model.graph.node[0].op_type = "Frobnicate"
    onnx.save_model(model, tmp_path / "m.onnx")
    with raises(UnknownOperatorError, "Frobnicate", onnx.__version__, exact=False):
        import_file(tmp_path / "m.onnx", name="m")

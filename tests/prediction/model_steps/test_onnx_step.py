"""Operations of ONNX files from shapes: what nodes compute, what is held, and what cannot be known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from daceml.errors import OnnxShapesError
from daceml.operations.database.records import Attribute, Operand, Operation
from daceml.operations.work.onnx_work import onnx_work
from daceml.prediction.model_steps.onnx_step import read_onnx_step
from daceml.prediction.model_steps.predict_step import predict_step
from tests.support.golden import golden, raises
from tests.support.onnx_files import save_sum

N = 64


def save(folder: Path, nodes: list[onnx.NodeProto], weights: dict[str, tuple[int, ...]], **told: Any) -> Path:
    """x: [batch, 64] -> y."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, told.get("x", ["batch", N]))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    data = [numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in weights.items()]
    graph = helper.make_graph(nodes, "net", [x], [y], initializer=data)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    """Two layers, as torch's exporter names their nodes."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="/net/first/Gemm", transB=1),
        helper.make_node("Relu", ["h"], ["a"], name="/net/act/Relu"),
        helper.make_node("Reshape", ["a", "same"], ["v"], name="/net/Reshape"),
        helper.make_node("MatMul", ["v", "w2"], ["y"], name="/net/second/MatMul"),
    ]
    path = save(tmp_path, nodes, {"w1": (4 * N, N), "b1": (4 * N,), "w2": (4 * N, N)})
    model = onnx.load(path)
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, 4 * N]), "same"))
    onnx.save(model, path)
    return path


def test_a_call_is_its_nodes_with_their_work(mlp: Path):
    step = read_onnx_step(mlp, {"batch": 8})
    gemm, relu, reshape, matmul = step.operations
    assert [one.layer for one in step.operations] == ["net.first", "net.act", "net", "net.second"]
    assert gemm.work is not None and gemm.work.flops == 2 * 8 * N * 4 * N
    assert gemm.work.bytes_moved == 4 * (8 * N + 4 * N * N + 4 * N + 8 * 4 * N)
    assert relu.work is not None and (relu.work.flops, relu.work.bytes_moved) == (
        8 * 4 * N,
        2 * 4 * 8 * 4 * N,
    )
    assert not reshape.launches
    assert matmul.work is not None and matmul.work.flops == 2 * 8 * N * 4 * N
    assert (step.name, step.samples, step.trains) == ("net", 8, False)


def test_a_training_step_is_twice_as_much_backwards_and_an_optimizer(mlp: Path):
    call = read_onnx_step(mlp, {"batch": 8})
    step = read_onnx_step(mlp, {"batch": 8}, train=True, optimizer="sgd")
    backward = [one for one in step.operations if one.phase == "backward"]
    assert [one.operation.operator for one in backward] == ["MatMul", "Reshape", "Relu", "Gemm"]
    assert {one.operation.direction for one in backward} == {"backward"}
    assert sum(one.work.flops for one in backward if one.work) == 2 * call.flops
    assert [one.ready for one in backward] == [("w2",), (), (), ("w1", "b1")]
    assert [row.name for row in step.parameters] == ["w1", "b1", "w2"]
    assert [one.operation.operator for one in step.operations][-1:] == ["aten::_foreach_add_"]
    assert step.notes == (golden(),)
    assert "ONNX" in step.notes[0]


def test_what_a_call_holds_is_freed_when_nobody_reads_it_any_more(mlp: Path):
    memory = read_onnx_step(mlp, {"batch": 1024}).memory
    hidden, x = 1024 * 4 * N * 4, 1024 * N * 4
    weights = 2 * 4 * N * N * 4 + 4 * N * 4 + 512  # sizes that Reshape takes, in a block of their own
    assert memory is not None
    assert (memory.parameters, memory.gradients, memory.optimizer) == (weights, 0, 0)
    # x, and Gemm's and Relu's results beside each other
    assert memory.peak == weights + x + 2 * hidden


def test_what_a_training_step_holds_is_what_it_reads_again(mlp: Path):
    memory = read_onnx_step(mlp, {"batch": 1024}, train=True, optimizer="sgd").memory
    call = read_onnx_step(mlp, {"batch": 1024}).memory
    assert memory is not None
    assert call is not None
    assert memory.saved == 2 * 1024 * N * 4 + 2 * 1024 * 4 * N * 4
    assert memory.gradients == 2 * 4 * N * N * 4 + 4 * N * 4
    assert memory.peak > call.peak


def test_half_types_stand_in_for_float32(mlp: Path):
    step = read_onnx_step(mlp, {"batch": 8}, precision="bf16")
    full = read_onnx_step(mlp, {"batch": 8})
    assert {one.work.arithmetic for one in step.operations if one.work and one.work.flops > 8 * 4 * N} == {
        "bfloat16"
    }
    assert step.memory is not None
    assert full.memory is not None
    assert step.memory.peak < 0.6 * full.memory.peak


def test_a_file_is_predicted_as_a_module_is(mlp: Path):
    one = predict_step(mlp, {"batch": 4096}, device="A100", train=True)
    eight = predict_step(str(mlp), {"batch": 4096}, device="A100", train=True, devices=8)
    assert 0 < one.low_us <= one.step_us <= one.high_us
    assert eight.step_us >= one.step_us
    assert eight.samples == 8 * 4096
    assert one.memory is not None


def test_sizes_of_other_tensors_are_no_work_of_a_device(tmp_path: Path):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "zero", "one"], ["head"]),
        helper.make_node("Concat", ["head", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    path = save(tmp_path, nodes, {})
    model = onnx.load(path)
    for name, value in (("zero", 0), ("one", 1), ("minus", -1)):
        model.graph.initializer.append(numpy_helper.from_array(np.array([value]), name))
    onnx.save(model, path)
    step = read_onnx_step(path, {"batch": 8})
    assert [one.operation.operator for one in step.operations if one.launches] == ["Relu"]


def operand(*shape: int) -> Operand:
    return Operand(shape=shape, dtype="float32")


@pytest.mark.parametrize(
    ("name", "shapes", "result", "attributes", "flops"),
    [
        ("Conv", [(2, 3, 8, 8), (4, 3, 3, 3)], (2, 4, 6, 6), {}, 2 * 2 * 4 * 36 * 27),
        ("Conv", [(2, 4, 8, 8), (4, 1, 3, 3)], (2, 4, 6, 6), {"group": 4}, 2 * 2 * 4 * 36 * 9),
        ("ConvTranspose", [(2, 4, 6, 6), (4, 3, 3, 3)], (2, 3, 8, 8), {}, 2 * 2 * 4 * 36 * 27),
        ("Gemm", [(5, 7), (5, 3)], (7, 3), {"transA": 1}, 2 * 5 * 7 * 3),
        ("Einsum", [(2, 3, 5), (2, 5, 7)], (2, 3, 7), {"equation": "bij, bjk->bik"}, 2 * 2 * 3 * 5 * 7),
        ("Einsum", [(2, 9, 3, 5), (5, 7)], (2, 9, 3, 7), {"equation": "...ij,jk->...ik"}, 2 * 18 * 3 * 5 * 7),
        ("LSTM", [(5, 2, 8), (1, 64, 8), (1, 64, 16)], (5, 1, 2, 16), {}, 2 * 5 * 2 * (64 * 8 + 64 * 16)),
        ("Attention", [(2, 4, 16, 8), *[(2, 4, 32, 8)] * 2], (2, 4, 16, 8), {}, 4 * 8 * 16 * 32 * 8),
        ("MaxPool", [(2, 4, 8, 8)], (2, 4, 4, 4), {"kernel_shape": (2, 2)}, 2 * 4 * 16 * 4),
        ("ReduceMean", [(4, 8)], (4, 1), {}, 32),
        ("Transpose", [(4, 8)], (8, 4), {}, 0),
    ],
)  # fmt: skip
def test_flops_of_operators(
    name: str,
    shapes: list[tuple[int, ...]],
    result: tuple[int, ...],
    attributes: dict[str, Attribute],
    flops: int,
):
    operands = tuple(operand(*shape) for shape in shapes)
    node = Operation(operator=name, operands=operands, attributes=attributes)
    work = onnx_work(node, [operand(*result)])
    assert work is not None
    assert work.flops == flops
    assert work.bytes_moved == sum(one.size_bytes for one in (*operands, operand(*result)))


def test_a_lookup_reads_what_it_writes():
    node = Operation(operator="Gather", operands=(operand(1000, 8), Operand(shape=(4,), dtype="int64")))
    work = onnx_work(node, [operand(4, 8)])
    assert work is not None
    assert work.bytes_moved == 2 * 4 * 8 * 4 + 4 * 8


def test_an_operator_that_nobody_described_has_no_work():
    assert onnx_work(Operation(operator="NonMaxSuppression", operands=(operand(4, 8),)), [operand(3)]) is None


def test_sizes_have_to_be_given_and_to_be_there(tmp_path: Path):
    path = save_sum(tmp_path)
    with raises(OnnxShapesError, path, "N", "--dim N=8"):
        read_onnx_step(path)
    with raises(OnnxShapesError, path, "M", "N") as refusal:
        read_onnx_step(path, {"N": 2, "M": 3})
    assert "--dim" not in str(refusal.value)


def test_shapes_that_follow_from_data_are_refused(tmp_path: Path):
    nodes = [
        helper.make_node("NonZero", ["x"], ["i"], name="find"),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
    ]
    with raises(OnnxShapesError, "'i'", "find", "NonZero"):
        read_onnx_step(save(tmp_path, nodes, {}), {"batch": 2})


def test_control_flow_is_refused(tmp_path: Path):
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"])], "b", [], [helper.make_tensor_value_info("r", 1, None)]
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
        helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch, name="choose"),
    ]
    with raises(OnnxShapesError, tmp_path / "net.onnx", "If"):
        read_onnx_step(save(tmp_path, nodes, {}), {"batch": 2})


def test_what_is_no_file_is_said(tmp_path: Path):
    with raises(OnnxShapesError, tmp_path / "none.onnx", "No such file", exact=False):
        read_onnx_step(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_bytes(b"\xff\xff\xffhello")
    with raises(OnnxShapesError, tmp_path / "text.onnx", "DecodeError", exact=False):
        read_onnx_step(tmp_path / "text.onnx")


def test_an_optimizer_of_a_file_goes_by_name(mlp: Path):
    with raises(OnnxShapesError, "optimizer", "torch.optim"):
        read_onnx_step(mlp, {"batch": 2}, train=True, optimizer=len)

"""Nodes of ONNX files, measured one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from daceml.errors import MeasurementError
from daceml.operations.database.store import OpDatabase
from daceml.operations.measuring.campaign import Campaign
from daceml.operations.measuring.executors import InProcess
from daceml.operations.measuring.one_operation import Settings
from daceml.operations.measuring.onnx_nodes import measured_node, node_environment, node_jobs
from tests.support.golden import raises

QUICK = Settings(rounds=3)


def net(folder: Path, *, external: bool = False) -> Path:
    """Two equal layers with a view between them, limits, and a lookup."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Clip", ["h", "low", "high"], ["c"]),
        helper.make_node("Reshape", ["c", "shape"], ["v"]),
        helper.make_node("MatMul", ["v", "w2"], ["m"]),
        helper.make_node("Gather", ["m", "index"], ["y"], axis=1),
    ]
    data = {
        "w": np.ones((64, 64), np.float32), "w2": np.zeros((64, 64), np.float32),
        "low": np.float32(-1), "high": np.float32(1), "shape": np.array([-1, 64]), "index": np.array([3, 60]),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        initializer=[numpy_helper.from_array(np.asarray(value), name) for name, value in data.items()],
    )
    path = folder / "net.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, path, save_as_external_data=external, size_threshold=0)
    return path


def test_each_different_node_is_one_job_and_views_are_none(tmp_path: Path):
    found = node_jobs(net(tmp_path), {"batch": 8})
    assert [(one.job.title, one.forward) for one in found] == [("MatMul", 2), ("Clip", 1), ("Gather", 1)]
    product, clip, _ = (one.job for one in found)
    assert [operand.shape for operand in product.operation.operands] == [(8, 64), (64, 64)]
    assert product.weights == ("w",)
    assert clip.weights == (), "limits decide what is computed, and keep their values"


@pytest.mark.parametrize("external", [False, True])
def test_every_node_runs_alone_and_becomes_a_row(tmp_path: Path, external: bool):
    jobs = [one.job for one in node_jobs(net(tmp_path, external=external), {"batch": 8})]
    entries = [measured_node(job, QUICK) for job in jobs]
    assert [entry.operation for entry in entries] == [job.operation for job in jobs]
    assert all(0 < entry.duration.median_s < 1 for entry in entries)
    assert "onnxruntime" in entries[0].environment.software


def test_a_campaign_takes_nodes_and_goes_on_where_it_was_left(tmp_path: Path):
    jobs = [one.job for one in node_jobs(net(tmp_path), {"batch": 8})]
    with OpDatabase(tmp_path / "rows.db") as database:

        def campaign(settings: Settings) -> Campaign:
            return Campaign(
                settings=settings, executor=InProcess, measure_job=measured_node, where=node_environment()
            )

        first = campaign(QUICK).run(jobs[:2], database)
        assert (len(first.measured), first.known, first.refused) == (2, 0, ())
        again = campaign(QUICK).run(jobs, database)
        assert (len(again.measured), again.known, again.refused) == (1, 2, ())
        assert database.find(jobs[0].operation)[0].source == "daceml measure"


def test_what_the_runtime_refuses_is_refused_with_its_reason(tmp_path: Path):
    graph = helper.make_graph(
        [helper.make_node("Expand", ["x", "shape"], ["y"])],
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 1]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 7])],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
        tmp_path / "n.onnx",
    )
    model = onnx.load(tmp_path / "n.onnx")
    model.graph.node[0].op_type = "Nonsense"
    ((one,),) = (node_jobs(tmp_path / "n.onnx"),)
    alone = onnx.ModelProto.FromString(one.job.model)
    alone.graph.node[0].op_type = "Nonsense"
    broken = type(one.job)(operation=one.job.operation, model=alone.SerializeToString(), weights=())
    with raises(MeasurementError, "ONNX Runtime", "Expand", "Nonsense", exact=False):  # ONNX Runtime says why
        measured_node(broken, QUICK)


def test_nodes_run_on_the_processor_as_calls_come(tmp_path: Path):
    (job, *_) = (one.job for one in node_jobs(net(tmp_path), {"batch": 8}))
    with raises(MeasurementError, "ONNX Runtime", "cold", '"eager"', '"cpu"'):
        measured_node(job, Settings(mode="cold", rounds=3))

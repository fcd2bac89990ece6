"""What passes leave on a network becomes records of levels, which survive in the folder of a program."""

from __future__ import annotations

from pathlib import Path

from daceml.codegen.planning.plan import make_plan
from daceml.compiler.stages.level_records import level_records
from daceml.onnx_ops.external import external_call
from daceml.onnx_ops.lowering import LoweringReport, NodeReport
from daceml.runtime.records.levels import LEVELS, LevelRecord, RefusalRecord, load_levels
from daceml.runtime.records.manifest import Manifest
from daceml.transformations.hardware.cpu_schedule import schedule_maps
from daceml.transformations.local.map_fusion import fuse_maps
from tests.support.golden import golden
from tests.support.small_networks import elementwise

STEPS = ["_out = _a + dace.float32(1)", "_out = _a * dace.float32(3)", "_out = _a - dace.float32(2)"]


def records(*, shape: tuple[int, ...] = (8, 32)) -> dict[str, LevelRecord]:
    network = elementwise(STEPS, shape)
    network.signature["x1"] = "head.tanh"
    for edge in network.state.edges():  # the first reader reads elsewhere, so that it refuses
        if edge.data.data == "x1" and edge.dst.label == "step1" and not hasattr(edge.dst, "map"):
            edge.data.subset.ranges[0] = (0, 0, 1)
    fuse_maps(network)
    schedule_maps(network)
    origin = NodeReport(
        op_type="Tanh",
        onnx_name="n",
        module_path="head",
        source="model.py:7",
        writes=("x1",),
        chosen="native:elementwise",
        refusals=(),
    )
    plan = make_plan(network, external_call)
    return {record.level: record for record in level_records(plan, LoweringReport(nodes=(origin,)), {})}


def test_there_is_a_record_for_every_level():
    assert tuple(records()) == LEVELS


def test_a_refusal_has_the_users_name_the_place_and_the_size():
    local = records()["local"]
    assert local.applied == {"fuse_maps": 1}
    (refusal,) = local.refused
    assert (refusal.transformation, refusal.subject, refusal.where) == (
        "fuse_maps",
        "head.tanh",
        "head, model.py:7",
    )
    assert "[i0, i1]" in refusal.reason and refusal.reason == golden()
    assert refusal.size_bytes == 8 * 32 * 4


def test_loops_that_stay_on_one_thread_say_why():
    hardware = records()["hardware"]
    assert hardware.applied == {}
    first, second = (refusal.reason.split(" (")[0] for refusal in hardware.refused)
    assert "256" in first and "16384" in first and first == second and first == golden()
    assert records(shape=(256, 256))["hardware"].applied == {"parallel loops": 2}


def test_the_workspace_is_compared_with_separate_arrays():
    layout = records()["layout"]
    assert layout.figures == {"separate_bytes": 1024, "workspace_bytes": 1024}
    assert layout.applied == {"arrays in one workspace": 1}


def test_they_lie_beside_the_manifest_and_are_loaded_on_their_own(tmp_path: Path):
    refused = (RefusalRecord(transformation="fuse_maps", subject="x", reason="no", size_bytes=3),)
    levels = (LevelRecord(level="local", passes={"fuse_maps": {}}, refused=refused),)
    empty = Manifest(
        inputs=(),
        outputs=(),
        weights=(),
        constants=(),
        mutated=(),
        symbols=(),
        steps=(),
        workspace_bytes=0,
        kernels=0,
        levels=levels,
    )
    empty.save(tmp_path)
    assert load_levels(tmp_path) == levels
    assert Manifest.load(tmp_path).levels == ()
    assert "fuse_maps" not in (tmp_path / "manifest.json").read_text()


def test_a_program_without_records_has_none(tmp_path: Path):
    assert load_levels(tmp_path) == ()

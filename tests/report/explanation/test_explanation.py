"""What `explain` counts and how it reads."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import ConfigurationError
from daceml.report.explanation.explanation import Explanation, explain, explanation
from daceml.runtime.records.levels import LevelRecord, RefusalRecord
from daceml.runtime.records.manifest import Manifest, StepRecord
from daceml.sdfg.origin import NodeOrigin
from daceml.text_tables import WIDTH
from tests.support.golden import golden, raises

STEPS = (
    StepRecord(
        kind="aten",
        label="Conv convolution",
        module_path="layer1.conv",
        unique_bytes=4_000_000,
        total_bytes=4_000_000,
        flops=90_000_000,
    ),
    StepRecord(
        kind="kernel",
        label="BatchNormalization_Relu",
        kernel="k_0",
        module_path="layer1.bn",
        unique_bytes=2_000_000,
        total_bytes=3_000_000,
        flops=1_500_000,
        special_functions=8,
        refusals=("aten:relu: views are not taken",),
    ),
    StepRecord(
        kind="onnxruntime",
        label="CumSum",
        module_path="head",
        source="model.py:41",
        unique_bytes=1000,
        total_bytes=1000,
        refusals=("native:scan: exclusive sums only", "aten:cumsum: int64 is not taken"),
    ),
    StepRecord(kind="copy", label="copy y to output 1", unique_bytes=400, total_bytes=400),
)
MANIFEST = Manifest(
    inputs=(),
    outputs=(),
    weights=(),
    constants=(),
    mutated=(),
    symbols=("N",),
    steps=STEPS,
    workspace_bytes=3_000_000,
    kernels=1,
    unfused={"kernels": 2, "unique_bytes": 5_000_000, "total_bytes": 6_000_000},
    stages_s={"export": 0.5, "kernels": 2.0},
)
READERS = "it has {} readers"
LEVELS = (
    LevelRecord(
        level="operators",
        passes={"Lowering": {"native": 3, "aten": 1, "onnxruntime": 1}},
        refused=(
            RefusalRecord(
                transformation="Lowering",
                subject="CumSum n4",
                reason="native:scan: exclusive sums only",
                size_bytes=1000,
            ),
        ),
        figures={"steps": 5, "unique_bytes": 9_500_000},
    ),
    LevelRecord(
        level="local",
        passes={"eliminate_copies": {}, "fuse_maps": {"fuse_maps": 1}},
        refused=(
            RefusalRecord(transformation="fuse_maps", subject="t1", reason=READERS.format(2), size_bytes=4),
            RefusalRecord(
                transformation="fuse_maps", subject="t2", reason="it is a view", size_bytes=900_000
            ),
            RefusalRecord(
                transformation="fuse_maps",
                subject="t3",
                reason=READERS.format(13),
                size_bytes=1_000_000,
                where="layer1.bn, model.py:7",
            ),
        ),
    ),
    LevelRecord(
        level="layout",
        passes={"MemoryPlan": {"arrays in one workspace": 2}},
        figures={"separate_bytes": 7_000_000, "workspace_bytes": 3_000_000},
    ),
    LevelRecord(level="hardware", passes={"schedule_maps": {}}),
)
ROWS = (
    "Conv convolution layer1.conv 4.00 90.00",
    "BatchNormalization_Relu layer1.bn 2.00 1.50",
    "CumSum head 0.001 0",
    "copy y to output 1 <0.001 0",
    "4 4 1.00x",
    "9.00 6.00 1.50x",
    "10.00 7.00 1.43x",
    "lowering 5 1 5 -> 4 9.50 -> 9.00",
    "lowering: Lowering (native x3, aten x1, onnxruntime x1)",
    "2 local 1 3 4 9.00 -> 6.00",
    "3 layout 2 0 4 6.00 7.00 -> 3.00",
    "without effect: eliminate_copies",
    "3 layout: MemoryPlan (arrays in one workspace x2)",
    "CumSum (head, model.py:41) native:scan: exclusive sums only aten:cumsum: int64 is not taken",
    "t3 (layer1.bn, model.py:7)",
    "91.50 Mflop",
    "kernels 2.00, export 0.60",
)


class Mish(nn.Module):
    """Three operators that become one kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(nn.functional.softplus(x))


def explained() -> Explanation:
    return explanation("Net", MANIFEST, LEVELS, {"export": 0.6})


def test_steps_are_counted_by_kind():
    counts = explained().counts
    assert counts == {
        "kernels": 1,
        "aten": 1,
        "torch": 0,
        "onnxruntime": 1,
        "copies": 1,
        "checks": 0,
        "distinct_kernels": 1,
    }


def test_every_count_is_there_even_where_nothing_is():
    counts = explanation("Empty", Manifest(**{**vars(MANIFEST), "steps": (), "kernels": 0}), (), {}).counts
    assert set(counts.values()) == {0}
    assert set(counts) == set(explained().counts)


def test_calls_move_the_same_before_and_after_and_kernels_do_not():
    seen = explained()
    assert seen.bytes == {"unique": 6_001_400, "total": 7_001_400}
    assert seen.eager == {"kernels": 4, "unique": 9_001_000, "total": 10_001_000}


def test_seconds_of_this_process_replace_those_of_the_one_that_compiled():
    assert explained().compile_seconds == {"export": 0.6, "kernels": 2.0}
    assert explained().from_cache
    assert not explanation("Net", MANIFEST, (), {"export": 0.5, "kernels": 2.0, "bind": 0.1}).from_cache


def test_it_reads_as_a_report():
    text = str(explained())
    assert text == golden()
    assert [row for row in ROWS if row not in " ".join(text.split())] == []


def test_a_call_is_named_by_its_operators_and_a_kernel_by_its_label():
    nodes = tuple(NodeOrigin(operator=name, onnx_name=name, module_path="net") for name in ("Conv", "Relu"))
    steps = (
        StepRecord(kind="aten", label="ConvActivation convolution", nodes=nodes),
        StepRecord(kind="kernel", label="Add_Relu", nodes=nodes[:1]),
    )
    text = str(explanation("Net", Manifest(**{**vars(MANIFEST), "steps": steps}), (), {}))
    assert "aten    Conv + Relu" in text and "kernel  Add_Relu" in text


def test_long_names_fit_the_page():
    long = StepRecord(kind="kernel", label="Label_" * 30, module_path="module." * 20, unique_bytes=10**12)
    refused = RefusalRecord(transformation="fuse_maps", subject="x " * 45, reason="reason " * 40)
    levels = (LevelRecord(level="local", passes={"name " * 30: {"what " * 30: 3}}, refused=(refused,)),)
    seen = explanation("Net", Manifest(**{**vars(MANIFEST), "steps": (long,)}), levels, {})
    assert max(map(len, str(seen).splitlines())) <= WIDTH
    assert max(map(len, seen.full_text().splitlines())) <= WIDTH


def test_the_full_text_has_every_refusal():
    text = explained().full_text()
    assert "    fuse_maps, t1, <0.001 MB: it has 2 readers\n" in text
    assert "    fuse_maps, t3 (layer1.bn, model.py:7), 1.00 MB: it has 13 readers\n" in text


def test_many_reasons_are_cut_and_counted():
    reasons = ["it is " + "abcdefgh"[i] * 3 for i in range(8)]
    refused = tuple(
        RefusalRecord(transformation="fuse_maps", subject="x", reason=reason, size_bytes=8 - i)
        for i, reason in enumerate(reasons)
    )
    seen = explanation("Net", MANIFEST, (LevelRecord(level="local", refused=refused),), {})
    assert "it is aaa" in str(seen) and "it is hhh" not in str(seen)
    (more,) = [line for line in str(seen).splitlines() if "full_text()" in line]
    assert more == golden() and "2" in more and "--all" in more
    assert "it is hhh" in seen.full_text()
    assert len(seen.refused) == 8


def test_without_records_of_levels_there_is_no_table_of_them():
    assert "level " not in str(explanation("Net", MANIFEST, (), {}))


def test_positions_that_are_checked_are_counted():
    check = StepRecord(kind="check", label="check positions in i")
    seen = explanation("Net", Manifest(**{**vars(MANIFEST), "steps": (check,)}), (), {})
    assert seen.counts["checks"] == 1
    first = str(seen).splitlines()[0]
    assert first == golden() and "Net" in first and "check" in first


def test_it_can_be_written_as_json():
    document = json.loads(json.dumps(explained().to_json()))
    assert document["counts"]["kernels"] == 1
    assert document["steps"][2]["refusals"] == list(STEPS[2].refusals)
    local = next(level for level in document["levels"] if level["name"] == "local")
    assert [refusal["subject"] for refusal in local["refused"]] == ["t3", "t2", "t1"]
    assert local["before"] == {"steps": 4, "unique_bytes": 9_001_000}


def test_a_notebook_gets_html_without_raw_names():
    spoiled = StepRecord(kind="kernel", label="<script>")
    refused = RefusalRecord(transformation="fuse_maps", subject="<b>", reason="it is <i>")
    levels = (LevelRecord(level="local", refused=(refused,)),)
    html = explanation("Net", Manifest(**{**vars(MANIFEST), "steps": (spoiled,)}), levels, {})._repr_html_()
    assert "&lt;script&gt;" in html and "<script>" not in html
    assert "it is &lt;i&gt;" in html and "<i>" not in html
    assert html.count("<table>") == html.count("</table>") == 3
    assert html.count("<details>") == html.count("</details>") == 3


@pytest.mark.parametrize("how", ["plain", "compiled", "decorated"])
def test_a_module_is_explained_however_it_comes(how: str):
    decorated = daceml.dace_module(Mish, backward=True)
    module = {"plain": Mish(), "compiled": daceml.compile(Mish(), backward=False), "decorated": decorated()}[
        how
    ]
    seen = explain(module, torch.randn(64, 48))
    assert seen.name == "Mish"
    assert (seen.counts["kernels"], seen.counts["aten"], seen.counts["onnxruntime"]) == (1, 0, 0)
    assert seen.bytes["unique"] == 2 * 64 * 48 * 4
    assert seen.eager["kernels"] == 3
    assert seen.applied["fuse_maps"] == 2
    levels = {level.name: level for level in seen.levels}
    assert [level.before["steps"] for level in seen.levels] == [3, 3, 3, 1, 1]
    assert levels["local"].before["unique_bytes"] > levels["local"].after["unique_bytes"]
    (sequential,) = levels["hardware"].refused
    assert sequential.reason == golden()
    assert all(fact in sequential.reason for fact in ("3072", "16384", "DACEML_PARALLEL_THRESHOLD"))
    assert (sequential.subject, sequential.size_bytes) == ("mul", 64 * 48 * 4)
    assert "Softplus_Tanh_Mul" in str(seen)


def test_what_is_no_module_is_refused():
    with raises(ConfigurationError, "explain", "nn.Module", "ONNXModel", "builtin_function_or_method"):
        explain(len, 3)  # pyright: ignore[reportArgumentType]


def test_a_training_step_is_explained_and_not_run():
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh())
    optimizer = torch.optim.Adam(model.parameters())
    step = daceml.compile_step(model, torch.nn.functional.mse_loss, optimizer)
    x, y = torch.randn(4, 6), torch.randn(4, 5)
    before = [p.detach().clone() for p in model.parameters()]
    seen = explain(step, x, y)
    torch.testing.assert_close([p.detach() for p in model.parameters()], before)
    assert not optimizer.state
    assert "Sequential" in seen.name and seen.counts["kernels"] > 0 and "transform" in seen.compile_seconds
    labels = " ".join(s.label for s in seen.steps)
    assert "Tanh" in labels and "update parameters" in labels
    assert str(seen).splitlines()[0].startswith("a training step of Sequential: ")


def test_a_program_of_the_cache_says_when_it_was_compiled():
    model, x = nn.Sequential(nn.Linear(3, 3), nn.Softplus()).eval(), torch.randn(2, 3)
    found = daceml.explain(model, x)
    assert isinstance(found, Explanation)
    seconds_ago = (datetime.now() - datetime.fromisoformat(found.compiled_at)).total_seconds()
    assert 0 <= seconds_ago < 3600 * 24 * 365
    kept = replace(found, from_cache=True, compiled_at="2026-05-20 14:03")
    assert "compiled by an earlier process on 2026-05-20 14:03, in" in " ".join(str(kept).split())
    assert "compiled in" in str(replace(found, from_cache=False))

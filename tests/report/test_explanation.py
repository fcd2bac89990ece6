"""What `explain` counts and how it reads."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import daceml
from daceml.errors import ConfigurationError
from daceml.report.explanation import Explanation, explain, explanation
from daceml.runtime.manifest import Manifest, StepRecord

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
    applied={"MapFusion": 1},
    refused=("t3 stays: it has 2 readers",),
    stages_s={"export": 0.5, "kernels": 2.0},
)
TEXT = """\
Net: 1 call of 1 kernel, 1 aten, 1 onnxruntime, 1 copy

kind          label                     module        MB unique   MB total   Mflop   Mspecial
─────────────────────────────────────────────────────────────────────────────────────────────
aten          Conv convolution          layer1.conv        4.00       4.00   90.00          0
kernel        BatchNormalization_Relu   layer1.bn          2.00       3.00    1.50     <0.001
onnxruntime   CumSum                    head              0.001      0.001       0          0
copy          copy y to output 1                         <0.001     <0.001       0          0

            one at a time   compiled   ratio
────────────────────────────────────────────
steps                   4          4   1.00x
MB unique            9.00       6.00   1.50x
MB total            10.00       7.00   1.43x

run by ONNX Runtime:
  CumSum (head, model.py:41)
    native:scan: exclusive sums only
    aten:cumsum: int64 is not taken

refused:
  t3 stays: it has 2 readers
  BatchNormalization_Relu: aten:relu: views are not taken

applied:   MapFusion x1
computes:  91.50 Mflop, <0.001 M special functions
symbolic:  N; figures hold at 16 for each
workspace: 3.00 MB
loaded from the cache; compiled in 2.60 s: kernels 2.00, export 0.60
"""


class Mish(nn.Module):
    """Three operators that become one kernel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(nn.functional.softplus(x))


def explained() -> Explanation:
    return explanation("Net", MANIFEST, {"export": 0.6})


def test_steps_are_counted_by_kind():
    counts = explained().counts
    assert counts == {"kernels": 1, "aten": 1, "onnxruntime": 1, "copies": 1, "distinct_kernels": 1}


def test_every_count_is_there_even_where_nothing_is():
    counts = explanation("Empty", Manifest(**{**vars(MANIFEST), "steps": (), "kernels": 0}), {}).counts
    assert counts == {"kernels": 0, "aten": 0, "onnxruntime": 0, "copies": 0, "distinct_kernels": 0}


def test_calls_move_the_same_before_and_after_and_kernels_do_not():
    seen = explained()
    assert seen.bytes == {"unique": 6_001_400, "total": 7_001_400}
    assert seen.eager == {"kernels": 4, "unique": 9_001_000, "total": 10_001_000}


def test_seconds_of_this_process_replace_those_of_the_one_that_compiled():
    assert explained().compile_seconds == {"export": 0.6, "kernels": 2.0}
    assert explained().from_cache
    assert not explanation("Net", MANIFEST, {"export": 0.5, "kernels": 2.0, "bind": 0.1}).from_cache


def test_it_reads_as_a_report():
    assert str(explained()) == TEXT


def test_long_names_fit_the_page():
    long = StepRecord(kind="kernel", label="Label_" * 30, module_path="module." * 20, unique_bytes=10**12)
    refused = ("reason " * 40,)
    seen = explanation("Net", Manifest(**{**vars(MANIFEST), "steps": (long,), "refused": refused}), {})
    assert max(map(len, str(seen).splitlines())) <= 110


def test_it_can_be_written_as_json():
    document = json.loads(json.dumps(explained().to_json()))
    assert document["counts"]["kernels"] == 1
    assert document["steps"][2]["refusals"] == list(STEPS[2].refusals)


def test_a_notebook_gets_html_without_raw_names():
    spoiled = StepRecord(kind="kernel", label="<script>")
    html = explanation("Net", Manifest(**{**vars(MANIFEST), "steps": (spoiled,)}), {})._repr_html_()
    assert "&lt;script&gt;" in html and "<script>" not in html
    assert html.count("<table>") == html.count("</table>") == 2


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
    assert seen.applied == {"MapFusion": 2}
    assert "Softplus_Tanh_Mul" in str(seen)


def test_what_is_no_module_is_refused():
    with pytest.raises(ConfigurationError) as caught:
        explain(len, 3)  # pyright: ignore[reportArgumentType]
    assert str(caught.value) == (
        "[DML001] explain takes an nn.Module or an ONNXModel, not a builtin_function_or_method\n"
        "  fix:   pass an instance of a module, then the arguments of a call"
    )

"""The standard's cases: which there are, how they are promoted and judged, and three of them executed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx.parser
import onnx.printer
import pytest

from benchmarks.children import Outcome
from benchmarks.conformance import __main__ as conformance
from benchmarks.conformance.cases import Case, load
from benchmarks.conformance.compare import difference
from benchmarks.conformance.execution import NEARER, outcome_fields, reason_group
from benchmarks.conformance.journal import Journal
from benchmarks.conformance.page import page
from benchmarks.conformance.promotion import promoted
from benchmarks.conformance.second_look import Results, nearer, widened


def case(name: str, text: str, *inputs: np.ndarray) -> Case:
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}')
    return Case(
        kind="node", name=name, operator=model.graph.node[0].op_type, expanded=False, model=model,
        data=[(inputs, ())], rtol=1e-4, atol=1e-7, statistical=False,
    )  # fmt: skip


RELU = case("relu", "(float[3] x) => (float[3] y) { y = Relu (x) }", np.ones(3, np.float32))


def row(case: str, implementation: str = "native", mode: str = "constant", **more: Any) -> dict[str, Any]:
    return {
        "kind": "node",
        "case": case,
        "implementation": implementation,
        "mode": mode,
        "operator": "Add",
        "expanded": False,
        "statistical": False,
        "verdict": "passed",
        "reason": "",
        "counts": {"native": 1},
        **more,
    }


@pytest.mark.slow
def test_the_installed_cases_are_found():
    found = {case.name: case for case in load("node")}
    assert len(found) > 1500
    assert found["test_relu"].operator == "Relu" and not found["test_relu"].expanded
    twin = found["test_layer_normalization_2d_axis0_expanded_ver18"]
    assert twin.expanded and twin.operator == "LayerNormalization", "not the last node of its function"
    assert found["test_training_dropout_default"].statistical
    assert not found["test_training_dropout_zero_ratio"].statistical
    assert found["test_bernoulli"].statistical and not found["test_dropout_default"].statistical


def test_light_and_converted_networks_are_found():
    light = {case.name: case for case in load("light")}
    assert len(light) == 9 and light["test_squeezenet"].data[0][0][0].shape == (1, 3, 224, 224)
    converted = load("pytorch-converted")
    assert len(converted) > 80 and all(len(case.data) >= 1 for case in converted)


def test_inputs_that_say_what_to_do_become_initializers():
    operands = ("starts", "ends", "axes", "steps")
    sizes = ", ".join(f"int64[1] {name}" for name in operands)
    text = f"(float[9] x, {sizes}) => (float[n] y) {{ y = Slice (x, {', '.join(operands)}) }}"
    numbers = (np.array([number]) for number in (1, 7, 0, 2))
    slice_ = case("slice", text, np.arange(9, dtype=np.float32), *numbers)
    constant = promoted(slice_)
    assert constant is not None
    assert [value.name for value in constant.model.graph.input] == ["x"]
    assert {tensor.name for tensor in constant.model.graph.initializer} == set(operands)
    assert len(constant.data[0][0]) == 1 and len(slice_.data[0][0]) == 5, "the case itself is unchanged"
    assert not slice_.model.graph.initializer
    text = "(float[3] x, int64[2] i) => (float[2] y) { y = Gather (x, i) }"
    assert promoted(case("gather", text, np.ones(3, np.float32), np.arange(2))) is None, "indices are data"
    jobs = conformance.jobs_of([slice_, RELU], ["native", "any"], ["constant", "runtime"])
    forms = {(job.case.name, job.implementation, job.mode) for job in jobs}
    assert ("relu", "native", "runtime") in forms, "both modes are one where nothing is promoted"
    assert len(forms) == len(jobs) == 4 + 1 + 2 + 1


def test_results_are_judged_by_the_rules_of_the_standard():
    one = np.ones(3, np.float32)
    close = {"rtol": 1e-3, "atol": 1e-7}
    assert difference([one], [one * np.float32(1.0009)], **close) == ""
    assert "differs in 3 of 3: 1 at (0,), not 1.01" in difference([one], [one * np.float32(1.01)], **close)
    assert "float32 (3,) instead of float64 (3,)" in difference([one], [one.astype(np.float64)], **close)
    assert "float32 (3,) instead of float32 (1, 3)" in difference([one], [one[None]], **close)
    assert difference([one], [one, one], **close) == "1 results instead of 2"
    odd = np.array([np.nan, np.inf, -np.inf], np.float32)
    assert difference([odd], [odd], **close) == "" and difference([-odd], [odd], **close)
    assert difference([odd], [one], **close) and difference([one], [odd], **close)
    assert difference([np.array([True])], [np.array([False])], **close)
    assert difference([[one]], [[one]], **close) == "" and difference([one], [[one]], **close)
    half = np.array([0.180419921875], np.float16)
    assert difference([half - np.float16(2**-12)], [half], **close) == "", "two units in the last place"
    assert difference([half - np.float16(2**-11)], [half], **close)
    large = np.array([2**62], np.int64)
    assert difference([large], [large], **close) == ""


SUM = """(float[3] x) => (float y, int64[1] n) {
    t = Constant <value_floats = [0.1, 0.2, 0.3]> () c = Cast <to = 1> (x) s = Add (c, t)
    y = ReduceSum <keepdims = 0> (s) n = Shape (x)
}"""


def of_sum(ours: float, stored: float, size: int = 3) -> tuple[Case, Results]:
    """x + t are 1e8 + 0.1, 0.2 - 1e8 and 0.3: 0.6, where float32 is off by eight."""
    inputs = [np.array([1e8, -1e8, 0], np.float32)]
    results = [[np.array(y, np.float32), np.array([n])] for y, n in ((ours, size), (stored, 3))]
    return case("sum", SUM), Results(inputs=inputs, ours=results[0], expected=results[1])


def test_a_result_may_be_nearer_to_the_exact_one_than_the_standards():
    assert nearer(*of_sum(0.60001, 0.3))
    assert not nearer(*of_sum(0.601, 0.3)), "not within the tolerance of the case"
    assert not nearer(*of_sum(0.60005, 0.59998)), "within it, and the stored one is nearer"
    assert not nearer(*of_sum(0.6, 0.3, size=4)), "another result is wrong"
    whole, results = of_sum(0.6, 0.3)
    assert not nearer(case("lacking", SUM.replace("Cast", "Unknown")), results), "the reference cannot run it"
    assert not nearer(whole, Results(inputs=[], ours=[np.array([1])], expected=[np.array([2])]))


def test_widening_leaves_no_float_and_the_model_as_it_was():
    model = case("sum", SUM).model
    before, text = model.SerializeToString(), onnx.printer.to_text(widened(model))
    assert "float" not in text.replace("value: tensor = double", "") and model.SerializeToString() == before
    assert "Cast <to: int = 11>" in text and "double[3] x" in text


def test_random_results_are_judged_by_their_moments():
    generator = np.random.default_rng(0)
    a, b = generator.normal(size=(2, 1000))
    random = {"rtol": 0.0, "atol": 0.0, "statistical": True}
    assert difference([a], [b], **random) == ""
    assert "mean" in difference([a + 1], [b], **random)
    assert "deviation" in difference([a * 2], [b], **random)
    assert "finite" in difference([np.where(a > 2, np.nan, a)], [b], **random)
    other = difference([a.astype(np.float32)], [b], **random)
    assert "float32" in other and "float64" in other


def test_a_process_that_ends_is_a_crash_and_reasons_are_grouped():
    crashed = Outcome(case=0, told={"stage": "the call"}, end="signal 11", duration_s=1.0)
    fields = outcome_fields(crashed)
    assert (fields["verdict"], fields["reason"]) == ("crashed", "signal 11 in the call")
    refused = Outcome(case=0, told={"verdict": "refused", "reason": "no"}, end="", duration_s=1.0)
    assert outcome_fields(refused) == {"verdict": "refused", "reason": "no", "counts": {}}
    a, b = "the shape of 'y' [2, 3] has 2 sizes", "the shape of 'result' [4] has 13 sizes"
    assert reason_group(a) == reason_group(b) == "the shape of … […] has n sizes"
    assert reason_group("float16 at opset18") == "float16 at opset18", "digits of names are theirs"


def test_bars_count_what_is_missing():
    rows = [row("a"), row("b", verdict="refused"), row("c", verdict="wrong"), row("d", "any")]
    rows += [row("e", "any", verdict="refused"), row("f", "any", verdict="refused", mode="runtime")]
    rows += [row(name, "onnxruntime", "runtime") for name in "de"]
    bars = {bar.name: bar for bar in conformance.bars_of(rows, "node")}
    owed = bars["node, native, constant: distinct cases short of 850"]
    assert owed.figure == 849 and owed.note == "1 pass" and not owed.met
    assert bars["node, native, constant: all cases short of 1300"].figure == 1299
    assert bars["node, native, constant: wrong"].note == "c"
    assert bars["node, native, constant: crashed"].met
    behind = bars["node, any, constant: cases that onnxruntime passes and daceml does not"]
    assert behind.figure == 1 and behind.note == "of 2: e"
    runtime = bars["node, any, runtime: cases that onnxruntime passes and daceml does not"]
    assert runtime.met, "f is none of the oracle's"
    without = conformance.bars_of(rows[:4], "node", everything=False)
    assert not any("short" in bar.name for bar in without)
    assert not without[-1].met, "without the oracle nothing is known"


def table_row(text: str, first: str) -> dict[str, int]:
    """What the table of totals counts in the row that begins so."""
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]
    (head,) = (cells for cells in table if cells[0] == "form")
    (found,) = (cells for cells in table if cells[0] == first)
    return {name: int(count) for name, count in zip(head[1:], found[1:], strict=True) if count != "0"}


def test_the_page_is_a_function_of_the_rows():
    rows = [row("a", i, m) for i in ("native", "any") for m in ("constant", "runtime")]
    rows += [row("b", verdict="refused", reason="no | way, 'x'"), row("b", "any", verdict="crashed")]
    rows += [row("c_expanded", expanded=True)]
    text = page(rows, onnx_version="9.9")
    assert text == page(rows[::-1], onnx_version="9.9")
    assert "3 cases of `onnx` 9.9" in text
    assert table_row(text, "native, constant") == {"cases": 2, "passed": 1, "refused": 1}
    assert table_row(text, "native, constant, expanded") == {"cases": 1, "passed": 1}
    (add,) = (line for line in text.splitlines() if line.startswith("| Add |"))
    assert "no \\| way" in add and "1 crashed" in add
    assert "## Nearer" not in text
    listed = page(
        [*rows, *(row("n", i, verdict=NEARER, reason="1, not 2") for i in ("native", "any"))],
        onnx_version="9",
    )
    assert "- `n` (any constant, native constant): 1, not 2" in listed


def test_rows_of_a_case_without_promotion_stand_for_both_modes(tmp_path: Path):
    journal = Journal(tmp_path / "journal")
    journal.add(row("relu", mode="runtime"))
    found = conformance.rows_of(journal, [RELU], ["native"], ["constant", "runtime"])
    assert [r["mode"] for r in found] == ["constant", "runtime"]


def test_wrong_results_that_are_the_oracles_are_told_apart(tmp_path: Path):
    journal = Journal(tmp_path / "journal")
    journal.add(row("relu", "onnxruntime", "runtime", verdict="wrong", reason="differs: 1, not 2"))
    journal.add(row("relu", "native", "runtime", verdict="wrong", reason="differs: 1, not 2"))
    journal.add(row("relu", "any", "runtime", verdict="wrong", reason="differs: 3, not 2"))
    found = conformance.rows_of(journal, [RELU], ["native", "any"], ["runtime"])
    assert [r["verdict"] for r in found] == ["as onnxruntime", "wrong", "wrong"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_cases_are_executed_and_resumed(tmp_path: Path):
    """In a fresh process: this one may have started threads, which forked ones would miss."""
    file, journal = tmp_path / "rows.json", tmp_path / "journal.jsonl"
    pattern = r"^test_(det_2d|equal_string|add_uint8)$"
    command = [sys.executable, "-m", "benchmarks.conformance", "--cases", pattern, "--check"]
    command += ["--json", str(file), "--journal", str(journal), "--mode", "constant"]
    first = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    rows = [json.loads(line) for line in journal.read_text().splitlines()]
    verdicts = {(r["case"].removeprefix("test_"), r["implementation"]): r for r in rows}
    kept = json.loads(file.read_text())["rows"]
    (passed,) = (r for r in kept if r["verdict"] == "passed" and r["implementation"] == "native")
    assert passed["cases"] == ["test_add_uint8", "test_det_2d"], "of what passed, a file has the names"
    assert verdicts["add_uint8", "native"]["verdict"] == "passed", first.stdout + first.stderr
    assert verdicts["add_uint8", "any"]["counts"] == {"native": 1}
    assert verdicts["det_2d", "any"]["verdict"] == verdicts["det_2d", "onnxruntime"]["verdict"] == "passed"
    refused = verdicts["equal_string", "native"]
    assert refused["verdict"] == "refused" and "string" in refused["reason"]
    assert verdicts["equal_string", "any"]["counts"] == {"onnxruntime": 1}, "no network holds strings"
    assert first.returncode == 0 and "5 of 5 bars met" in first.stdout
    lines = journal.read_text()
    again = subprocess.run(
        [*command, "--resume"], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert "0 executions" in again.stdout and journal.read_text() == lines, again.stderr

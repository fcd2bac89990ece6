from __future__ import annotations

import json
from pathlib import Path

import pytest

from daceml.profiling.kineto import read_trace
from tests.support.command_line import told
from tests.support.golden import golden
from tests.support.recorded_calls import Recording


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    run = Recording()
    for number in range(3):
        at = 1000.0 * number
        run.annotation(f"ProfilerStep#{number}", at, 950)
        run.operator("aten::mm", at + 5, 30)
        run.call("cudaLaunchKernel", at + 10, 5, ("volta_sgemm_64x64_nn", 7, at + 20, 800))
        run.call("cudaStreamSynchronize", at + 30, 795)
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"traceEvents": run.events}))
    return file


def test_a_replay_of_a_file(trace: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = told(capsys, "trace", "replay", trace)
    assert code == 0
    assert "ProfilerStep#2" in out and "0.00%" in out


def test_what_makes_figures_doubtful_is_printed_before_them(trace: Path, capsys: pytest.CaptureFixture[str]):
    content = json.loads(trace.read_text())
    content["traceEvents"][-1]["dur"] = -5
    trace.write_text(json.dumps(content))
    for command in (["trace", "replay", trace], ["trace", "whatif", trace, "--amp", "2"]):
        code, out, _ = told(capsys, *command)
        assert code == 0
        assert 0 <= out.index("warning: 1 of 15 events (7%) were left out") < out.index("replay error"), out
        assert "1 with a duration below zero" in " ".join(out.split()) and "note: left out: events" in out


def test_nothing_in_a_trace_reaches_the_terminal_as_a_command_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    evil = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\u202e"
    run = Recording()
    for number in range(3):
        at = 1000.0 * number
        run.annotation(f"ProfilerStep#{number}", at, 950)
        run.operator(f"aten::{evil}mm", at + 5, 30)
        run.call("cudaLaunchKernel", at + 10, 5, (f"volta_sgemm{evil}", 7, at + 20, 800))
        run.call("cudaStreamSynchronize", at + 30, 795)
    for name in ("process_name", "process_labels", "thread_name"):
        label = {"name": evil, "labels": evil}
        run.events.append({"ph": "M", "name": name, "pid": 0, "tid": 7, "ts": 0, "args": label})
    file = tmp_path / "run.json"
    device = {"id": 0, "name": f"V100{evil}", "totalGlobalMem": 16 * 2**30}
    file.write_text(json.dumps({"traceEvents": run.events, "deviceProperties": [device], evil: evil}))
    for command in (
        ["trace", "replay", file],
        ["trace", "replay", file, "--json"],
        ["trace", "whatif", file, "--amp", "2"],
        ["trace", "whatif", file, "--remove", f"volta_sgemm{evil}"],
        ["trace", "predict", file, "--to", "A100-SXM4-40GB"],
        ["trace", "predict", file, "--to", "A100-SXM4-40GB", "--from", "V100-SXM2-16GB"],
        ["trace", "replay", tmp_path / f"no{evil}.json"],
    ):
        _, out, err = told(capsys, *command)
        assert not set("\x1b\x07\r\x9b\u202e") & set(out + err), command
        assert out + err, command
    trace = read_trace(file)
    assert any("\\x1b" in name for name in trace.names)
    assert not set("\x1b\x07\r\x9b\u202e") & set(
        "".join((*trace.names, *(str(lane) for lane in trace.lanes)))
    )


def test_questions_about_a_file(trace: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = told(capsys, "trace", "whatif", trace, "--amp", "2", "--gist", "--json")
    assert code == 0
    answers = json.loads(out)
    assert [one["optimizations"] for one in answers["questions"]] == [["automatic mixed precision (fp16)"]]
    assert answers["refused"][0]["title"] == "Gist encodings"
    assert answers["step_us"] == 1000 - 2 * 2  # two events of a step, of 2 us each
    assert answers["questions"][0]["step_us"] == pytest.approx(996 - 400, abs=2)


def test_where_no_question_is_answered_all_reasons_are_printed(
    trace: Path, capsys: pytest.CaptureFixture[str]
):
    code, _, err = told(capsys, "trace", "whatif", trace, "--gist", "--ddp", "8", "--checkpointing", "layer")
    assert code == 2
    plain = " ".join(err.split())
    assert "[DML613] none of the 3 questions can be answered" in plain
    assert "--ddp [DML615]" in plain and "Gist encodings [DML613]" in plain
    assert "activation checkpointing [DML613]" in plain


def test_a_link_that_is_taken_from_the_card_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = Recording()
    run.annotation("ProfilerStep#0", 0, 900)
    run.operator("autograd::engine::evaluate_function: MmBackward0", 5, 30)
    run.call("cudaLaunchKernel", 10, 5, ("volta_sgemm_64x64_nn", 7, 20, 800))
    trace, page = tmp_path / "run.json", tmp_path / "page.html"
    cards = [{"id": 0, "name": "Tesla V100-SXM2-16GB"}]
    trace.write_text(json.dumps({"traceEvents": run.events, "deviceProperties": cards}))
    asked = ("trace", "whatif", trace, "--ddp", "8", "--gradients", "10MB")
    code, out, _ = told(capsys, *asked, "--html", page)
    assert code == 0
    assert "assumed: no interconnect was given" in out and "V100" in out and "150GB/s" in out
    assert "no interconnect was given" in page.read_text()
    (sentence,) = json.loads(told(capsys, *asked, "--json")[1])["assumptions"]
    assert sentence == golden()
    assert "no interconnect" not in told(capsys, *asked, "--link", "100Gbps")[1]


def test_views_are_written(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page, view = tmp_path / "page.html", tmp_path / "view.json"
    code, _, _ = told(capsys, "trace", "whatif", trace, "--amp", "--html", page, "--perfetto", view)
    assert code == 0
    assert "automatic mixed precision" in page.read_text()
    names = {
        e["args"]["name"] for e in json.loads(view.read_text())["traceEvents"] if e["name"] == "process_name"
    }
    assert names == {"recorded", "replayed", "automatic mixed precision (fp16)"}


def test_a_path_of_links_that_lead_in_a_circle_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "run.json").symlink_to(tmp_path / "run.json")
    code, out, err = told(capsys, "trace", "replay", tmp_path / "run.json")
    assert (code, out) == (2, "")
    assert "DML000" not in err and "run.json is a symbolic link that leads back to itself" in err


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["trace", "replay", "absent.json"], ["absent.json"]),
        (["trace", "whatif", "TRACE"], []),
        (["trace", "whatif", "TRACE", "--apm"], ["'apm'"]),
        (["trace", "whatif", "TRACE", "--gist"], ["Gist"]),
        (["trace", "whatif", "TRACE", "--amp", "--html", "TRACE"], ["--html", "run.json"]),
        (["trace", "replay", "TRACE", "--perfetto", "TRACE"], ["--perfetto", "run.json"]),
        (["trace", "whatif", "TRACE", "--amp", "0"], ["amp", "compute_speedup", "0"]),
        (["trace", "replay", "TRACE", "--html", "no/such/folder/page.html"], ["--html", "no/such/folder"]),
    ],
)
def test_what_cannot_be_done_is_said_in_our_form(
    trace: Path, arguments: list[str], facts: list[str], capsys: pytest.CaptureFixture[str]
):
    code, out, err = told(capsys, *(str(trace) if word == "TRACE" else word for word in arguments))
    assert (code, out, err) == (2, "", golden())
    assert all(fact in err for fact in facts) and "fix:" in err and "Traceback" not in err
    assert json.loads(trace.read_text())["traceEvents"]

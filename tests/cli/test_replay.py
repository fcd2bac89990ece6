from __future__ import annotations

import json
from pathlib import Path

import pytest

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
    code, out, _ = told(capsys, "replay", trace)
    assert code == 0
    assert "ProfilerStep#2" in out and "0.00%" in out


def test_questions_about_a_file(trace: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = told(capsys, "whatif", trace, "--amp", "2", "--gist", "--json")
    assert code == 0
    answers = json.loads(out)
    assert [one["optimizations"] for one in answers["questions"]] == [["automatic mixed precision"]]
    assert answers["refused"][0]["title"] == "Gist encodings"
    assert answers["step_us"] == 1000
    assert answers["questions"][0]["step_us"] == pytest.approx(1000 - 400, abs=2)


def test_views_are_written(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page, view = tmp_path / "page.html", tmp_path / "view.json"
    code, _, _ = told(capsys, "whatif", trace, "--amp", "--html", page, "--perfetto", view)
    assert code == 0
    assert "automatic mixed precision" in page.read_text()
    names = {
        e["args"]["name"] for e in json.loads(view.read_text())["traceEvents"] if e["name"] == "process_name"
    }
    assert names == {"recorded", "replayed", "automatic mixed precision"}


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["replay", "absent.json"], ["absent.json"]),
        (["whatif", "TRACE"], []),
        (["whatif", "TRACE", "--apm"], ["'apm'"]),
        (["whatif", "TRACE", "--gist"], ["Gist"]),
        (["whatif", "TRACE", "--amp", "--html", "TRACE"], ["--html", "run.json"]),
        (["replay", "TRACE", "--perfetto", "TRACE"], ["--perfetto", "run.json"]),
        (["whatif", "TRACE", "--amp", "0"], ["amp", "compute_speedup", "0"]),
        (["replay", "TRACE", "--html", "no/such/folder/page.html"], ["--html", "no/such/folder"]),
    ],
)
def test_what_cannot_be_done_is_said_in_our_form(
    trace: Path, arguments: list[str], facts: list[str], capsys: pytest.CaptureFixture[str]
):
    code, out, err = told(capsys, *(str(trace) if word == "TRACE" else word for word in arguments))
    assert (code, out, err) == (2, "", golden())
    assert all(fact in err for fact in facts) and "fix:" in err and "Traceback" not in err
    assert json.loads(trace.read_text())["traceEvents"]

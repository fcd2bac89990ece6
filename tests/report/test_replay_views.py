from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path

import numpy as np

from daceml.report.perfetto import perfetto, write_perfetto
from daceml.report.replay_html import replay_html, whatif_html
from daceml.report.replay_json import replay_json, whatif_json
from daceml.report.replay_text import replay_text, whatif_text
from daceml.simulation.analysis.busiest import Amounts
from daceml.simulation.analysis.critical_path import critical_path
from daceml.simulation.analysis.steps import step_times
from daceml.simulation.engine import simulate
from daceml.simulation.network.topology import Topology
from daceml.simulation.whatif.amp import AutomaticMixedPrecision
from daceml.simulation.whatif.data_parallel import DataParallel
from daceml.simulation.whatif.gradients import Gradients
from daceml.simulation.whatif.larger_batch import LargerBatch
from daceml.simulation.whatif.whatif_result import Refusal, predict
from tests.support.golden import golden
from tests.support.recorded_step import run
from tests.support.task_stories import graph_of


def test_a_replay_for_a_terminal():
    text = replay_text(simulate(run()))
    assert text == golden()
    assert "0.00%" in text and "ProfilerStep#1" in text and "5.00" in text
    assert "kernels" in text and "a <note>" in text


def test_questions_for_a_terminal_name_assumptions_refusals_and_the_error():
    seen = predict(run(), [AutomaticMixedPrecision()])
    text = whatif_text([seen], [Refusal(title="Gist", reason="no layer", code="DML615")], changes=True)
    assert text == golden()
    assert AutomaticMixedPrecision.title in text and "3.00" in text
    assert "Gist" in text and "no layer" in text and "float32" in text and "0.00%" in text
    assert "1 x volta_sgemm<128> (gpu0): 90000.0 -> 30001.0 us" in text


def test_a_step_without_the_profiler_is_told_from_the_replayed_one():
    plain = graph_of(
        "begin cpu 0 kind marker step 0 at 0",
        "op cpu 5000 kind operator step 0 phase forward at 0",
        "end cpu 0 kind marker step 0 at 5000",
    )
    traced = dataclasses.replace(plain, host_events=10)
    for graph in (plain, traced):
        seen = predict(graph, [LargerBatch(ratio=2)])
        text = " ".join(whatif_text([seen]).split())
        assert ("without what the profiler is taken to cost" in text) == (graph is traced)
        assert (seen.baseline_us < step_times(seen.baseline).step_us) == (graph is traced)


def test_the_same_as_json():
    schedule = simulate(run())
    told = json.loads(json.dumps(replay_json(schedule)))
    assert told["steps"] == [{"name": "ProfilerStep#1", "recorded_us": 5000, "replayed_us": 5000}]
    assert told["critical_path_us"] == {"kernel": 90000, "launch lag": 10}
    answers = json.loads(json.dumps(whatif_json([predict(run(), [AutomaticMixedPrecision()])])))
    assert answers["questions"][0]["step_us"] == 30011
    assert answers["questions"][0]["change"]["changed"][0]["count"] == 1


def test_pages_need_nothing_else_and_escape_what_they_show():
    seen = predict(run(), [AutomaticMixedPrecision()])
    for page in (replay_html(simulate(run())), whatif_html([seen])):
        assert page.startswith("<!doctype html>")
        assert "<script" not in page and "http" not in page
        assert "a &lt;note&gt;" in page
    assert "volta_sgemm&lt;128&gt;" in whatif_html([seen])


def test_a_page_has_the_tables_of_the_terminal():
    schedule = simulate(run())
    amounts = Amounts(flops=np.full(len(run()), 9e9), bytes_moved=np.full(len(run()), 9e6))
    page, text = replay_html(schedule, amounts=amounts), replay_text(schedule, amounts=amounts)
    for told in ("why no kernel runs", "kernels that take longest", "TFLOP/s", "launch latency"):
        assert told in page and told in text
    (kernel,) = replay_json(schedule, amounts=amounts)["busiest"]["kernel"]
    assert kernel["flops_per_s"] == 1e11 and kernel["bytes_per_s"] == 1e8
    assert "0.10" in page and "0.1" in text


def test_warnings_come_before_every_figure():
    doubted = dataclasses.replace(run(), warnings=("a <warning>",))
    seen = predict(doubted, [AutomaticMixedPrecision()])
    texts = (replay_text(simulate(doubted)), whatif_text([seen]))
    pages = (replay_html(simulate(doubted)), whatif_html([seen]))
    assert all(-1 < text.index("warning: a <warning>") < text.index("0.00%") for text in texts)
    assert all(-1 < page.index("warning: a &lt;warning&gt;") < page.index("0.00%") for page in pages)
    assert replay_json(simulate(doubted))["warnings"] == whatif_json([seen])["warnings"] == ["a <warning>"]


def test_a_network_is_not_called_a_device():
    graph = graph_of(
        "begin cpu 0 kind marker step 0 at 0",
        "bw cpu 5000 kind operator step 0 phase backward at 0",
        "end cpu 0 kind marker step 0 at 5000",
    )
    seen = predict(graph, [DataParallel(topology=Topology.of("2", "100Gbps"), gradients=Gradients.of(1e9))])
    page = whatif_html([seen])
    assert "network alone" in page and "devices alone" not in page
    assert "network alone" in replay_text(seen.schedule)
    assert "devices alone" in whatif_html([predict(run(), [AutomaticMixedPrecision()])])


def test_a_replay_that_is_off_warns_first():
    graph = run()
    late = 2 * graph.tasks.recorded_us + np.arange(len(graph))
    off = simulate(dataclasses.replace(graph, tasks=dataclasses.replace(graph.tasks, recorded_us=late)))
    (warning,) = replay_json(off)["warnings"]
    assert warning == golden()
    assert replay_text(off).index("warning: the replay misses") < replay_text(off).index("replay error")


def test_perfetto_has_what_was_recorded_replayed_and_predicted_and_the_critical_path(tmp_path: Path):
    seen = predict(run(), [AutomaticMixedPrecision()])
    schedules = {"replayed": seen.baseline, "amp": seen.schedule}
    paths = {title: critical_path(schedule) for title, schedule in schedules.items()}
    events = perfetto(schedules, paths=paths)["traceEvents"]
    processes = {e["args"]["name"]: e["pid"] for e in events if e["name"] == "process_name"}
    assert list(processes) == ["recorded", "replayed", "amp"]
    kernels = {
        e["pid"]: (e["ts"], e["dur"]) for e in events if e["name"] == "volta_sgemm<128>" and e["tid"] >= 10
    }
    assert kernels == {1: (10, 90000), 2: (10, 90000), 3: (10, 30001)}
    lanes = [e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 3]
    assert "critical path" in lanes and "gpu0" in lanes
    file = tmp_path / "view.json.gz"
    write_perfetto(file, schedules, paths=paths)
    assert len(json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]) == len(events)

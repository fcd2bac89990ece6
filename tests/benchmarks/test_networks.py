"""Networks beside their peers, told as stories by parts that measure nothing; and real parts of replicas."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ceilings import Ceilings
from benchmarks.models.named import spec_named
from benchmarks.networks import __main__ as networks
from benchmarks.networks.bars import bars_of, depth_bars
from benchmarks.networks.parts import Case
from benchmarks.networks.process import run_part
from benchmarks.peers import ways_of
from benchmarks.profiles import program_figures
from benchmarks.rounds import Measurement, Slice
from benchmarks.training_memory import peak_bytes
from tests.support.golden import golden

MACHINE = Ceilings(bytes_per_s=2e10, exponentials_per_s=1e9, flops_per_s=2e11)


def rounds(**durations_us: float) -> dict[str, Any]:
    names = {name.replace("_default", "@default"): us for name, us in durations_us.items()}
    entry = {name: Slice(duration_us=us, foreign=0.0) for name, us in names.items()}
    return Measurement(names=tuple(names), rounds=(entry,) * 6, missing={"inductor": "no compiler"}).to_data()


def fake_part(case: Case, part: str, limit_s: float) -> dict[str, Any]:
    """Everything is twice as fast, and half as large, as its peers."""
    level = {"level": "local", "before": {"steps": 9, "unique_bytes": 2_000_000}, "after": {"steps": 4}}
    return {
        "times": rounds(eager=40.0, daceml=20.0, eager_default=90.0, daceml_default=30.0),
        "parity": {"median_over_eager": 1.0, "outside": []},
        "programs": {
            "kernels": 4, "bytes_moved": 1_000_000, "flops": 10, "floor_us": 5.0, "steps_us": 18.0,
            "contractions_us": 10.0, "levels": {"forward": [level]},
        },
        "memory": {"eager": 2_000_000, "daceml": 1_000_000},
        "compile": {"daceml": {"cold_s": 5.0, "warm_s": 1.0}, "inductor": {"cold_s": 10.0, "warm_s": 2.0}},
        "depth": {"compile_s": {"bert_encoder:24": 12.0, "resnet152": 30.0}.get(case.model, 10.0)},
    }[part]  # fmt: skip


def test_a_network_that_keeps_every_promise(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "networks.json"
    assert networks.main(["--only", "bert", "--check", "--json", str(file)], run=fake_part) == 0
    said = capsys.readouterr().out
    assert any("floor" in line and "28 %" in line for line in said.splitlines())
    assert "MISSED" not in said
    inference, training = json.loads(file.read_text(encoding="utf-8"))["rows"]
    assert (inference["case"], training["case"]) == ("bert, inference", "bert, training")
    assert training["speedup"]["median"] == 2.0
    assert training["times"]["missing"] == {"inductor": "no compiler"}
    case = Case(model="bert", mode="training")
    assert all(training[part] == fake_part(case, part, 0.0) for part in ("programs", "memory", "compile"))
    assert "memory" not in inference, "a peak is asked of training steps"


def test_all_networks_are_asked_for_their_depth_too(tmp_path: Path):
    file = tmp_path / "networks.json"
    assert networks.main(["--mode", "training", "--check", "--json", str(file)], run=fake_part) == 0
    assert [figure_of(file, name) for name in ("bert_encoder:24", "resnet152")] == [1.2, 3]


def figure_of(file: Path, *facts: str) -> float | None:
    """Of the bar whose name has these."""
    bars = json.loads(file.read_text(encoding="utf-8"))["bars"]
    (found,) = (bar["figure"] for bar in bars if all(fact in bar["name"] for fact in facts))
    return found


def test_a_part_that_fails_misses_its_bar_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def run(case: Case, part: str, limit_s: float) -> dict[str, Any]:
        bad = case.model == "bert" and part in ("times", "memory", "compile", "parity")
        return {"failure": "took longer than 5 s"} if bad else fake_part(case, part, limit_s)

    file = tmp_path / "networks.json"
    line = ["--only", "bert", "--only", "mish", "--mode", "training", "--check", "--json", str(file)]
    assert networks.main(line, run=run) == 1
    assert "took longer than 5 s" in capsys.readouterr().out
    assert figure_of(file, "geometric mean", "time over the best peer") is None
    assert figure_of(file, "geometric mean", "peak memory") is None
    assert (figure_of(file, "bert", "parity"), figure_of(file, "mish", "parity")) == (None, 0)


def test_a_slow_network_misses_what_was_promised():
    times = rounds(eager=10.0, daceml=12.0, eager_default=11.0, daceml_default=10.0)
    (mean, slowest, default) = bars_of([{"model": "bert", "mode": "training", "times": times}])
    assert [bar.met for bar in (mean, slowest, default)] == [False, False, False]
    assert slowest.note == "bert, training"


def test_inference_need_not_be_faster_than_its_best_peer_but_as_fast():
    times = rounds(eager=20.0, onnxruntime=10.0, daceml=10.0, eager_default=20.0, daceml_default=10.0)
    bars = bars_of([{"model": "bert", "mode": "inference", "times": times}])
    assert all(bar.met for bar in bars)


def test_depths_that_were_not_compiled_are_not_measured():
    assert [bar.figure for bar in depth_bars({"bert_encoder:24": 3.0, "resnet50": None})] == [None, None]


def test_a_journal_is_believed_and_failures_are_tried_again(tmp_path: Path):
    journal = tmp_path / "journal.jsonl"
    line = ["--only", "bert", "--mode", "training", "--journal", str(journal)]
    asked: list[str] = []

    def run(case: Case, part: str, limit_s: float) -> dict[str, Any]:
        asked.append(part)
        known = part != "memory" or asked.count("memory") > 1
        return fake_part(case, part, limit_s) if known else {"failure": "exit code 1"}

    networks.main(line, run=run)
    networks.main(line, run=run)
    assert asked == ["parity", "times", "programs", "memory", "compile", "memory"]


def test_the_journal_of_another_program_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    journal = tmp_path / "journal.jsonl"
    journal.write_text('{"case": "test_relu"}\n', encoding="utf-8")
    assert networks.main(["--journal", str(journal)], run=fake_part) == 2
    said = capsys.readouterr().err
    assert said == golden()
    assert str(journal) in said and "'commit'" in said


def test_nothing_begins_after_the_budget(capsys: pytest.CaptureFixture[str]):
    assert networks.main(["--only", "bert", "--budget", "1e-9", "--check"], run=fake_part) == 1
    assert re.search("bert, inference: no parity: .*budget", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        (["--budget", "0"], ["--budget is 0"]),
        (["--waterfall", "--part", "times"], ["--waterfall", "--part"]),
        (["--only", "alexnet"], ["--only", "'alexnet'"]),  # argparse's own words
    ],
)
def test_bad_arguments_say_what_to_give(
    line: list[str], facts: list[str], capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        networks.main(line, run=fake_part)
    said = capsys.readouterr().err.partition("error: ")[2]
    assert all(fact in said for fact in facts)


@pytest.mark.slow
def test_a_part_runs_in_a_process_of_its_own():
    seen = run_part(Case(model="reduced:mish", mode="inference"), "parity", 120.0)
    assert seen["outside"] == []


@pytest.mark.slow
def test_a_process_that_fails_or_does_not_end_gives_its_reason():
    failed = run_part(Case(model="reduced:alexnet", mode="inference"), "parity", 120.0)
    assert failed == {"failure": "exit code 1: KeyError: 'alexnet'"}
    late = run_part(Case(model="reduced:mish", mode="inference"), "parity", 0.01)
    assert late == {"failure": golden()}
    assert "0 s" in late["failure"]


@pytest.mark.parametrize(
    ("mode", "programs"), [("inference", {"inference"}), ("training", {"forward", "backward"})]
)
def test_a_profile_has_every_program_and_its_contractions(mode: Any, programs: set[str]):
    seen = program_figures(lambda: spec_named("reduced:mlp_mixer"), mode, MACHINE)
    assert set(seen["levels"]) == programs
    assert 0.0 < seen["contractions_us"] <= seen["steps_us"]
    assert seen["kernels"] > 0 and seen["bytes_moved"] > 0 and seen["floor_us"] > 0.0


@pytest.mark.parametrize("way", ["eager", "daceml"])
def test_a_peak_holds_inputs_results_and_gradients(way: str):
    spec = spec_named("reduced:mish")
    (x,) = spec.example()
    assert peak_bytes(lambda: spec, way) >= 3 * x.nbytes


def test_channels_last_is_a_way_for_images_only():
    assert "eager_channels_last" in ways_of(spec_named("reduced:resnet50"), "inference")
    assert "eager_channels_last" not in ways_of(spec_named("reduced:bert"), "inference")
    assert "onnxruntime" not in ways_of(spec_named("reduced:bert"), "training")
    assert "daceml_frozen" in ways_of(spec_named("reduced:bert"), "inference")
    assert "daceml_frozen" not in ways_of(spec_named("reduced:bert"), "training")


def test_every_network_of_a_bar_has_a_name():
    assert spec_named("resnet152").name == "resnet152"
    assert spec_named("bert_encoder:24").name == "bert_encoder_24"

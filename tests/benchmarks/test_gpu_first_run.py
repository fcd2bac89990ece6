"""The first run on a device, as its rehearsal: steps that hang, crash or find something wrong."""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.blocks.definitions import BLOCKS
from benchmarks.gpu.case import Case
from benchmarks.gpu.first_run import __main__ as first_run
from benchmarks.gpu.first_run import driver, identity
from benchmarks.gpu.first_run.cells import Cells
from benchmarks.gpu.first_run.counters import counters_of
from benchmarks.gpu.first_run.driver import Run, run_steps
from benchmarks.gpu.first_run.memory import faults
from benchmarks.gpu.first_run.plan import CELLS, STEPS, Step
from benchmarks.gpu.first_run.rows import add_row, read_rows
from benchmarks.gpu.first_run.step_cells import BLOCK_ORDER, PREPARED, cells_of
from benchmarks.gpu.first_run.table import MOST_LINES, bars, table_of
from benchmarks.gpu.measures import MEASURES
from benchmarks.machine import ROOT
from daceml.codegen_cuda.device_objects import emulation_objects
from daceml.config import config
from daceml.runtime.launcher import make_ready
from daceml.toolchain.cache import Cache
from daceml.toolchain.cxx import torch_header
from tests.support.golden import golden

WITH_CELLS = [step.name for step in STEPS if step.program == CELLS]

PROGRAMS = {
    # starts a process of its own, writes its number, and never ends
    "hanging": """\
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path(sys.argv[sys.argv.index("--results") + 1]).with_name("child").write_text(str(child.pid))
time.sleep(600)
""",
    "crashing": "import os; os.abort()\n",
    "blind": """\
import sys
from benchmarks.gpu.first_run.rows import add_row
from pathlib import Path
file = Path(sys.argv[sys.argv.index("--results") + 1])
add_row(file, {"kind": "identity", "case": "identity", "outside": ["torch sees no CUDA device"]})
""",
    "working": """\
import sys
from benchmarks.gpu.first_run.rows import add_row
from pathlib import Path
file = Path(sys.argv[sys.argv.index("--results") + 1])
add_row(file, {"kind": "small", "case": "one", "outside": []})
add_row(file, {"kind": "small", "case": "two", "outside": ["output: error 1, at most 0"]})
""",
}


def steps_of(tmp_path: Path, *names: str, limit_s: float = 60.0) -> tuple[list[Step], Run]:
    """Steps whose programs are those of `PROGRAMS`; one that hangs has ten seconds."""
    for name in names:
        (tmp_path / f"first_run_{name}.py").write_text(PROGRAMS[name])
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    run = Run(
        results=tmp_path / "results.jsonl",
        log=tmp_path / "log.txt",
        end=time.monotonic() + limit_s,
        environment={**os.environ, "PYTHONPATH": paths},
    )
    limits = {"hanging": 10.0}  # Python has to have started in it
    return [
        Step(name=name, limit_s=limits.get(name, limit_s), proves="", program=f"first_run_{name}")
        for name in names
    ], run


@pytest.mark.slow
def test_a_step_that_hangs_is_ended_with_all_it_started_and_the_others_run(tmp_path: Path):
    rows = run_steps(*steps_of(tmp_path, "hanging", "crashing", "working"))
    assert [row["state"] for row in rows] == ["ended by its limit", "exit code -6", "done"]
    assert (rows[2]["cells"], rows[2]["wrong"], rows[2]["left"]) == (2, 1, 0)
    assert rows[1]["left"] == 1, "a step without a cell has not done its work"
    child = int((tmp_path / "child").read_text())
    status = Path(f"/proc/{child}/status")
    assert not status.exists() or "zombie" in status.read_text(), "the process that it had started"
    assert [row["kind"] for row in read_rows(tmp_path / "results.jsonl")] == [
        "run", "step", "step", "small", "small", "step",
    ]  # fmt: skip


def test_a_step_without_time_is_not_begun(tmp_path: Path):
    rows = run_steps(*steps_of(tmp_path, "working", limit_s=0.0))
    assert rows[0]["state"] == "not begun: time was up" and rows[0]["cells"] == 0


@pytest.mark.slow
def test_a_limit_is_shortened_by_what_is_left_of_the_run(tmp_path: Path):
    steps, run = steps_of(tmp_path, "hanging", limit_s=driver.SHORTEST_S + 1.0)
    (row,) = run_steps([Step(name="hanging", limit_s=600.0, proves="", program=steps[0].program)], run)
    assert row["state"] == "ended by its limit" and row["seconds"] < 60.0


def test_half_a_row_of_a_process_that_was_killed_is_left_out(tmp_path: Path):
    file = tmp_path / "results.jsonl"
    add_row(file, {"case": "whole"})
    with file.open("a", encoding="utf-8") as stream:
        stream.write('{"case": "hal')
    assert read_rows(file) == [{"case": "whole"}]


@pytest.mark.parametrize("emulated", [False, True])
@pytest.mark.parametrize("name", WITH_CELLS)
def test_every_step_has_cells_that_can_be_measured(name: str, emulated: bool):
    cells = cells_of(name, emulated=emulated)
    assert cells and len({case.key for case in cells}) == len(cells)
    assert {case.kind for case in cells} <= MEASURES.keys()
    assert 0 < len(cells_of(name, emulated=emulated, quick=True)) <= len(cells)


def test_what_is_timed_is_compiled_before():
    prepared = {(case.kind, case.name, case.mode) for case in cells_of("prepare", emulated=False)}
    assert set(PREPARED) <= set(WITH_CELLS) and set(BLOCK_ORDER) == set(BLOCKS)
    for name in ("blocks", "bert", "networks"):
        assert {(c.kind, c.name, c.mode) for c in cells_of(name, emulated=False)} <= prepared


@pytest.mark.parametrize("until_time", [False, True])
def test_a_cell_that_time_did_not_suffice_for_is_left_out_of_the_last_step_alone(
    until_time: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: now_s)
    monkeypatch.setattr("benchmarks.gpu.first_run.cells.time", clock)

    def late(case: Case, limit_s: float) -> dict[str, Any]:
        nonlocal now_s
        now_s += limit_s
        return {"failure": f"took longer than {limit_s:.0f} s", "late": True}

    step = Step(name="last", limit_s=6.0, proves="", until_time=until_time)
    options = argparse.Namespace(
        results=tmp_path / "rows",
        end=6.0,
        commit="abc",
        emulated=True,
        quick=False,
        factor=1.0,
    )
    Cells(step, options).measure(Case(kind="check", name="slow"), late)  # type: ignore[arg-type]
    seen = [row["case"] for row in read_rows(tmp_path / "rows")]
    assert seen == ([] if until_time else ["slow, fp32"])


def test_the_run_needs_no_more_than_its_time():
    needed = [step for step in STEPS if step.name != "correctness"]
    # every step at its limit would take longer than the run; those before the blocks must not
    before = needed[: [step.name for step in needed].index("blocks")]
    assert sum(step.limit_s for step in before) < 350


# cell, label of a kernel, and what is replaced in its code: a wrong sum, an address outside, one far outside,
# and a sum over one thread
BROKEN = {
    "smoke": ("linear_norm", "Gelu_LayerNormalization", "double(_a0)", "double(_a0) * 1.001"),
    "memory": ("linear_norm", "Gelu_LayerNormalization", "(4 * t))", "(4 * t) + 4096)"),
    "memory, far": ("linear_norm", "Gelu_LayerNormalization", "(4 * t))", "(4 * t) + 65536)"),
    "calls": ("convolution", "BatchNormalizationSavingGrad", "block_sum(_a0, int(128))", "_a0"),
}
BREAKING = """\
import os, sys, importlib.util
from dataclasses import replace

class Breaking:
    def find_spec(self, name, path=None, target=None):
        if name != "daceml.codegen_cuda.kernel_unit":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def run_and_break(module):
            run(module)
            right, (label, old, new) = module.kernel_unit, os.environ["BROKEN_KERNEL"].split("|")

            def kernel_unit(kernel):
                unit = right(kernel)
                if not unit.launched.function.startswith(label):
                    return unit
                assert old in unit.text, unit.text
                return replace(unit, text=unit.text.replace(old, new))

            module.kernel_unit = kernel_unit

        spec.loader.exec_module = run_and_break
        return spec

sys.meta_path.insert(0, Breaking())
"""


def ready_cache(folder: Path) -> Path:
    """A cache with what every program needs, and with no kernel: broken ones must not be found by others."""
    shared = Cache(config().cache_folder)
    make_ready(shared)
    torch_header(shared)
    emulation_objects(shared)
    for kind in ("headers", "launchers", "emulation"):
        shutil.copytree(shared.root / kind, folder / kind)
    return folder


@pytest.mark.slow
@pytest.mark.timeout(2400)  # minutes on two cores
def test_every_step_is_rehearsed(tmp_path: Path):
    # one cell of each kind and mode: make gpu-rehearsal runs all of them
    command = ["bash", str(ROOT / "benchmarks" / "gpu_first_run.sh"), "--emulated", "--check", "--quick"]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_the_step_fails_and_names_a_kernel_that_was_broken_by_hand(name: str, tmp_path: Path):
    step, (cell, label, old, new) = name.partition(",")[0], BROKEN[name]
    (tmp_path / "sitecustomize.py").write_text(BREAKING)
    environment = {
        **os.environ,
        "BROKEN_KERNEL": f"{label}|{old}|{new}",
        "PYTHONPATH": str(tmp_path),
        "PYTHON": sys.executable,
        "DACEML_CACHE": str(ready_cache(tmp_path / "cache")),
    }
    command = ["bash", str(ROOT / "benchmarks" / "gpu_first_run.sh"), "--emulated", "--check"]
    command += ["--step", step, "--only", cell, "--out", str(tmp_path / "out")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"MISSED step {step}: cells that are wrong" in done.stdout
    rows = read_rows(tmp_path / "out" / "results.jsonl")
    named = [text for row in rows for text in (*row.get("named", ()), *row.get("outside", ()))]
    assert any(label in text for text in named), done.stdout
    assert label in done.stdout


def test_the_summary_names_the_machine_steps_faults_and_kernels_in_sixty_lines():
    wrong = {"kind": "small", "outside": ["seed0.output: error 1e-3, at most 1e-6"]}
    rows: list[dict[str, Any]] = [
        {"kind": "identity", "step": "identity", "case": "identity", "emulated": False, "commit": "abc",
         "machine": {"date": "2026-11-26T00:00"}, "device": {"gpu": "A GPU", "driver": "580.1"}},
        *({**wrong, "case": f"cell {number}"} for number in range(100)),
        {"kind": "diagnosis", "case": "cell 0, kernels", "named": ["mish_0123 (forward): error 1e-3"]},
        {"kind": "step", "step": "smoke", "state": "ended by its limit", "seconds": 60.0, "limit_s": 60.0,
         "cells": 100, "wrong": 100, "left": 4},
        *({"kind": "replays", "case": f"block {number}", "failure": "exit code -6"} for number in range(80)),
    ]  # fmt: skip
    lines = table_of(rows)
    assert len(lines) == MOST_LINES and "more lines" in lines[-1]
    text = "\n".join(lines)
    for part in ("A GPU", "580.1", "WRONG cell 0: seed0", "kernel mish_0123"):
        assert part in text
    (smoke,) = (line.split() for line in lines if line.startswith("smoke"))
    assert {"60", "100", "4"} <= set(smoke)
    assert [bar.met for bar in bars(rows)] == [False]


def test_a_step_that_was_ended_meets_no_bar():
    row = {"kind": "step", "step": "smoke", "state": "ended by its limit", "cells": 8, "wrong": 0, "left": 0}
    (bar,) = bars([row])
    assert not bar.met and bar.note == "ended by its limit, 0 cells are left"
    assert [one.met for one in bars([{**row, "state": "done"}])] == [True]
    assert [one.met for one in bars([{**row, "state": "done", "left": 1}])] == [False]


def test_what_was_only_prepared_or_diagnosed_has_no_bar_of_its_own():
    case = {"name": "mish", "mode": "inference", "precision": "fp32", "emulated": False, "outside": []}
    rows: list[dict[str, Any]] = [
        {**case, "case": "mish, prepare", "kind": "replays", "question": "prepare"},
        {**case, "case": "mish, prepare", "kind": "values", "question": "prepare"},
        {**case, "case": "mish, kernels", "kind": "diagnosis", "question": "kernels", "named": []},
    ]
    assert bars(rows) == []
    assert [bar.met for bar in bars([{**case, "case": "mish", "kind": "values", "question": ""}])] == [True]


def test_counters_of_a_launch_become_one_row():
    head = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
    metrics = [
        ("dram__bytes_read.sum", "Mbyte", "536.9"),
        ("dram__bytes_write.sum", "Gbyte", "0.5"),
        ("gpu__time_duration.sum", "ns", "412,000"),
        ("launch__registers_per_thread", "register/thread", "32"),
        ("sm__warps_active.avg.pct_of_peak_sustained_active", "%", "91.5"),
    ]
    kernel = "mish_01(const float *)"
    lines = [f'"0","7","{kernel}","","{name}","{unit}","{value}"' for name, unit, value in metrics]
    (lacking,) = counters_of("\n".join([head, *lines[:2]]).replace("536.9", "n/a"))
    assert lacking["outside"] == [
        "no figure of dram_read_bytes, duration_us, active_warps_percent, registers"
    ]
    (row,) = counters_of("\n".join(["==PROF== Connected", head, *lines]))
    assert row["outside"] == []
    assert row["counters"] == {
        "kernel": "mish_01", "dram_read_bytes": 536.9e6, "dram_written_bytes": 0.5e9, "duration_us": 412.0,
        "registers": 32.0, "active_warps_percent": 91.5,
    }  # fmt: skip


def test_a_fault_of_memory_is_told_with_its_kernel():
    said = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 16 bytes
=========     at daceml::kernel::mish_01(const float *, float *)+0x1d0
=========     by thread (31,0,0) in block (7,0,0)
========= ERROR SUMMARY: 1 error
"""
    place = "at daceml::kernel::mish_01(const float *, float *)+0x1d0"
    assert faults(said) == [f"Invalid __global__ write of size 16 bytes {place}"]
    assert faults("========= ERROR SUMMARY: 0 errors\n") == []


def test_without_git_the_commit_is_that_of_the_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / identity.MANIFEST).write_text(json.dumps({"commit": "abc"}))
    monkeypatch.setattr(first_run.machine, "commit", lambda: None)
    assert first_run._commit(tmp_path) == "abc"
    assert first_run._commit(None) == "unknown"


def test_what_earlier_runs_found_is_kept(tmp_path: Path):
    for number in (1, 2):
        (tmp_path / "results.jsonl").write_text(f'{{"case": {number}}}\n')
        assert not first_run._fresh(tmp_path).exists()
    for number in (1, 2):
        assert read_rows(tmp_path / f"earlier-{number}-results.jsonl") == [{"case": number}]


def test_two_runs_do_not_write_into_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(SystemExit) as end:
            first_run.main(["--out", str(tmp_path)])
    said = capsys.readouterr().err.partition("error: ")[2]
    assert (end.value.code, said) == (2, golden())
    assert str(tmp_path) in said and "--out" in said


def test_a_run_that_was_ended_meets_no_bar_of_the_steps_it_did_not_reach():
    rows = [{"kind": "run", "steps": ["smoke", "calls"]}, {"kind": "plan", "step": "smoke", "cells": 8}]
    assert [(bar.met, bar.note) for bar in bars(rows)] == [(False, "not run"), (False, "not run")]


def test_without_a_device_the_first_step_is_the_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    steps, run = steps_of(tmp_path, "blind", "working")
    assert [row["step"] for row in run_steps(steps, run)] == ["blind"]
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "CUDA" in line]
    assert said == golden()


def test_ending_the_script_ends_the_run(tmp_path: Path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho $$ >"$CALLS"\nexec sleep 300\n')
    python.chmod(0o755)
    calls = tmp_path / "calls"
    script = subprocess.Popen(
        ["bash", str(ROOT / "benchmarks" / "gpu_first_run.sh")],
        env={**os.environ, "PYTHON": str(python), "CALLS": str(calls)},
    )
    while not (calls.exists() and calls.read_text().strip()):
        time.sleep(0.05)
    script.terminate()
    assert script.wait(60) == 143
    assert not Path(f"/proc/{calls.read_text().strip()}").exists()


@pytest.mark.parametrize(
    ("content", "file"),
    [
        ({}, "manifest.json"),
        ({"manifest.json": "{}"}, "cache.tar.gz"),
        ({"manifest.json": '{"files": {"cache.tar.gz": "0"}}', "cache.tar.gz": "half"}, "cache.tar.gz"),
    ],
)
def test_a_folder_that_is_no_whole_kit_is_refused(
    tmp_path: Path, content: dict[str, str], file: str, capsys: pytest.CaptureFixture[str]
):
    for name, text in content.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(SystemExit) as end:
        first_run.main(["--kit", str(tmp_path)])
    said = capsys.readouterr().err.partition("error: ")[2]
    assert (end.value.code, said) == (2, golden())
    assert all(fact in said for fact in (f"--kit {tmp_path} ", file, "make gpu-kit"))


def test_the_script_puts_the_wheels_of_a_kit_on_the_path(tmp_path: Path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@" >>"$CALLS"\necho "$PYTHONPATH" >>"$CALLS"\n')
    python.chmod(0o755)
    (tmp_path / "kit" / "wheels").mkdir(parents=True)
    calls = tmp_path / "calls"
    subprocess.run(
        ["bash", str(ROOT / "benchmarks" / "gpu_first_run.sh"), "--kit", str(tmp_path / "kit")],
        env={**os.environ, "PYTHON": str(python), "CALLS": str(calls)},
        check=True,
    )
    lines = calls.read_text().splitlines()
    target = lines[0].split("--target ")[1].split()[0]
    assert "pip install" in lines[0] and "--no-index" in lines[0]
    assert re.fullmatch(rf"-m benchmarks.gpu.first_run --spent-s \d+ --kit {tmp_path / 'kit'}", lines[2])
    assert lines[3].split(os.pathsep)[:2] == [str(ROOT), target]

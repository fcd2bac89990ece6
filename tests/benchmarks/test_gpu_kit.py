"""What a first run takes along, without the hour that compiling all of it takes."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.first_run import identity
from benchmarks.gpu.first_run.plan import STEPS
from benchmarks.gpu.first_run.step_cells import cells_of
from benchmarks.gpu.kit import __main__ as kit
from benchmarks.gpu.kit import programs, wheels
from benchmarks.gpu.kit.wheels import CARRIED, lacking
from benchmarks.gpu.ways import WAYS
from benchmarks.machine import installed_version
from daceml.toolchain.cache import Cache


def test_the_machine_or_the_kit_has_every_package():
    assert lacking() == set()
    assert all(installed_version(name) for name in CARRIED), "its needs could not be followed"


def test_what_a_package_needs_through_others_is_missing_too(monkeypatch: pytest.MonkeyPatch):
    needs = {"new": ["newer", "torch"], "newer": ["dace"]}
    monkeypatch.setattr(wheels, "_needs", lambda name: iter(needs.get(name, ())))
    assert wheels.lacking(["new"]) == {"new", "newer"}, "the machine has torch, and the kit dace"


def test_every_cell_that_compiles_is_compiled_once():
    found = programs.cases(quick=False)
    assert len({case.key for case in found}) == len(found) and {case.question for case in found} == {
        "compile"
    }
    wanted = {
        (case.name, case.mode)
        for step in STEPS
        if step.name in ("smoke", "calls", "values", "blocks", "bert", "mbconv", "networks", "correctness")
        for case in cells_of(step.name, emulated=False)
        if case.kind in WAYS
    }
    assert {(case.name, case.mode) for case in found} == wanted
    assert found[0].kind == "small", "what the first steps need comes first"


def test_only_what_travels_and_is_whole_is_kept(tmp_path: Path):
    cache = Cache(tmp_path / "cache")
    for kind in ("kernels", "programs", "launchers"):
        cache.get(kind, "whole", lambda folder: (folder / "made").write_text("made") and None)
    (tmp_path / "cache" / "kernels" / "half").mkdir()
    assert programs.keep(cache.root, tmp_path / "cache.tar.gz") == {"kernels": 1, "programs": 1}
    with tarfile.open(tmp_path / "cache.tar.gz") as archive:
        archive.extractall(tmp_path / "there", filter="data")
    kept = Cache(tmp_path / "there")
    assert kept.find("kernels", "whole") and kept.find("programs", "whole")
    assert not kept.holds("kernels", "half") and not kept.holds("launchers", "whole")


def test_a_case_that_does_not_compile_misses_a_bar():
    rows = [
        {"kind": "plan", "cells": 2},
        {"kind": "small", "case": "mish", "failure": "nvcc failed"},
        {"kind": "small", "case": "bert", "failure": "took longer than 300 s", "late": True},
    ]
    wrong = programs.wrong(rows)
    assert wrong == ["mish: nvcc failed", "bert: took longer than 300 s"]
    met = {bar.name: bar.met for bar in kit.bars(2**20, wrong, [], 60.0)}
    assert met.pop("cases that do not compile") is False and all(met.values())
    for size, left, seconds in ((41 * 2**20, [], 60.0), (2**20, ["mish"], 60.0), (2**20, [], 1300.0)):
        assert not all(bar.met for bar in kit.bars(size, [], left, seconds))


def test_what_there_was_no_time_for_is_left_to_the_machine():
    every = programs.cases(quick=True)
    rows = [{"kind": "plan", "cells": 9}, {"kind": every[0].kind, "case": every[0].label}]
    assert programs.left(rows, quick=True) == every[1:]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_or_a_stand_in_nothing_is_built(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert kit.main(["--out", str(tmp_path / "kit")]) == 2
    assert "run make gpu-kit" in capsys.readouterr().err and not (tmp_path / "kit").exists()


def test_other_versions_than_those_of_a_kit_are_listed(tmp_path: Path):
    manifest = kit._manifest(tmp_path, "abc")
    assert json.loads(json.dumps(manifest)) == manifest
    made, here = manifest["versions"], identity.versions()
    assert {"torch", "nvcc", "sources of daceml"} <= made.keys()
    assert identity.differences(made, here) == []
    assert identity.differences({**made, "onnx": "1.0"}, here) == [f"onnx 1.0, here {made['onnx']}"]

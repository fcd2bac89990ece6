"""The first steps of a first run, as a machine with a device would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu.first_run.rows import is_wrong, read_rows
from benchmarks.machine import ROOT


@pytest.mark.slow
def test_the_first_steps_find_everything_right(tmp_path: Path):
    command = ["bash", str(ROOT / "benchmarks" / "gpu_first_run.sh"), "--check", "--factor", "8"]
    command += ["--total-s", "550", "--out", str(tmp_path)]
    command += [word for step in ("identity", "smoke", "calls") for word in ("--step", step)]
    environment = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    rows = read_rows(tmp_path / "results.jsonl")
    assert not [row for row in rows if is_wrong(row)], done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["device"]["gpu"] for row in rows if row["kind"] == "identity"] == ["fake device"]
    assert not any(row.get("emulated") for row in rows)

"""The command as a process: closed pipes and Ctrl-C end it without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.golden import golden

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "daceml.cli.main"]


def test_a_reader_that_goes_away_ends_the_command_quietly():
    with subprocess.Popen(
        [*COMMAND, "devices", "--json"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 1


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_half_built(tmp_path: Path):
    (tmp_path / "slow.py").write_text(
        "import sys, time\nfrom torch import nn\n"
        "class Slow(nn.Module):\n"
        "    def forward(self, x):\n"
        "        print('traced', flush=True)\n"
        "        time.sleep(60)\n"
        "        return x\n"
    )
    with subprocess.Popen(
        [*COMMAND, "compile", "slow.py:Slow", "-i", "3", "--onnx", "x.onnx"],
        cwd=tmp_path,
        env={**os.environ, "DACEML_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # whoever starts tests in the background may have it ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        while line.endswith(" s)\n"):  # of progress
            line = process.stderr.readline()
        assert line == "traced\n"  # what a model prints goes to stderr
        time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        left = process.stderr.read().splitlines(keepends=True)
        assert "".join(line for line in left if not line.endswith(" s)\n")) == golden()  # without progress
        assert process.wait() == 130
    assert not (tmp_path / "x.onnx").exists()
    assert list(tmp_path.rglob("building/*")) == []
